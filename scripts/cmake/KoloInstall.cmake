# What `cmake --install` installs: the component `library` is the CMake package kolo (static libraries and
# the public headers), the component `programs` is kolo-train, kolo-bench, kolo-sim and kolo-topo.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Headers name each other from the root of this tree ("comm/base/dtype.h"), so that root is installed too;
# users write <kolo/kolo.h>.
set(header_root ${CMAKE_INSTALL_INCLUDEDIR}/kolo)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/kolo)

# runtime/api/kolo.h and all that it includes; the rest is not an interface.
set(public_headers
  comm/base/buffer_view.h
  comm/base/dtype.h
  comm/base/error.h
  comm/base/native_stream.h
  comm/base/reduction.h
  comm/message/received.h
  comm/rendezvous/key_value_store.h
  comm/rendezvous/rendezvous.h
  comm/rendezvous/store_rendezvous.h
  fusion/gradient.h
  runtime/api/compression_stats.h
  runtime/api/gradient_set.h
  runtime/api/kolo.h
  runtime/api/options.h
  runtime/api/plan_summary.h
  runtime/api/row_sums.h
  runtime/api/ticket.h)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${header_root}/${folder} COMPONENT library)
endforeach()
install(FILES runtime/include/kolo/kolo.h DESTINATION ${header_root} COMPONENT library)

set(libraries kolo_topology kolo_comm kolo_fusion kolo_compression kolo_network_factory kolo_rendezvous_factory
  kolo_device_factory kolo_group_factory kolo_runtime)
foreach(library IN ITEMS kolo_mpi kolo_ucx kolo_cuda kolo_nccl)
  if(TARGET ${library})
    list(APPEND libraries ${library})
  endif()
endforeach()
install(TARGETS ${libraries} EXPORT koloTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${header_root})
install(EXPORT koloTargets NAMESPACE kolo:: DESTINATION ${package_folder} COMPONENT library)

configure_package_config_file(scripts/cmake/koloConfig.cmake.in koloConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(koloConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
    ${CMAKE_CURRENT_BINARY_DIR}/koloConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/koloConfigVersion.cmake
    scripts/cmake/FindNCCL.cmake
    scripts/cmake/FindUCX.cmake
  DESTINATION ${package_folder} COMPONENT library)

foreach(program IN ITEMS kolo-train kolo-bench kolo-sim kolo-topo)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
  endif()
endforeach()
