# Rules for `cmake --install`: the component `library` is the CMake package kolo (static libraries,
# the shared library with the C interface, and the public headers); the component `programs` is
# kolo-train, kolo-bench, kolo-sim and kolo-topo.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/kolo)

# In this tree headers include each other by paths from the root ("comm/base/dtype.h"). Installed
# headers are below kolo/ and include each other by paths from there, so that users of <kolo/kolo.h>
# have nothing else of this project on their include path.
function(kolo_install_header header destination)
  file(READ ${header} text)
  string(REGEX REPLACE "#include \"([a-z]+/)" "#include \"kolo/\\1" text "${text}")
  cmake_path(GET header PARENT_PATH folder)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/installed/${header} "${text}")
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/installed/${header} DESTINATION ${destination} COMPONENT library)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
endfunction()

set(public_headers
  comm/base/buffer_view.h
  comm/base/dtype.h
  comm/base/element.h
  comm/base/error.h
  comm/base/half.h
  comm/base/native_stream.h
  comm/base/reduction.h
  comm/base/span.h
  comm/base/value_table.h
  comm/message/received.h
  comm/rendezvous/key_value_store.h
  comm/rendezvous/rendezvous.h
  comm/rendezvous/store_rendezvous.h
  fusion/gradient.h
  runtime/api/check_equal.h
  runtime/api/gradient_set.h
  runtime/api/group.h
  runtime/api/kolo.h
  runtime/options/options.h
  runtime/options/plan_summary.h
  runtime/calls/row_sums/row_sums.h
  runtime/api/ticket.h
  runtime/store/parameter_store.h)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  kolo_install_header(${header} ${CMAKE_INSTALL_INCLUDEDIR}/kolo/${folder})
endforeach()
# The trainer, for training programs with their own models, optimizers and data sets. Installs the
# headers of all its folders except the GPU's.
if(KOLO_WITH_TRAINER)
  file(GLOB trainer_headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS trainer/*.h trainer/*/*.h
    trainer/*/*/*.h)
  list(FILTER trainer_headers EXCLUDE REGEX "^trainer/cuda/|-inl\\.h$")
  foreach(header IN LISTS trainer_headers ITEMS comm/base/aligned_memory.h comm/base/check.h comm/base/clock.h
      comm/base/mutex.h comm/base/nearest_name.h comm/base/unique_handle.h)
    cmake_path(GET header PARENT_PATH folder)
    kolo_install_header(${header} ${CMAKE_INSTALL_INCLUDEDIR}/kolo/${folder})
  endforeach()
  set(trainer_libraries kolo_command_line kolo_trainer kolo_trainer_checkpoint kolo_trainer_loop)
  if(TARGET kolo_trainer_cuda)
    list(APPEND trainer_libraries kolo_trainer_cuda)
  endif()
  foreach(library IN LISTS trainer_libraries)
    target_compile_features(${library} INTERFACE cxx_std_20)
  endforeach()
  install(TARGETS ${trainer_libraries} EXPORT koloTrainerTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT koloTrainerTargets NAMESPACE kolo:: DESTINATION ${package_folder} COMPONENT library)
endif()

foreach(name IN ITEMS kolo kolo_c kolo_c_gradients kolo_c_store torch)
  kolo_install_header(runtime/include/kolo/${name}.h ${CMAKE_INSTALL_INCLUDEDIR}/kolo)
endforeach()

set(libraries kolo_topology kolo_comm kolo_fusion kolo_compression kolo_network_factory kolo_rendezvous_factory
  kolo_rendezvous_factory_without_mpi kolo_device_factory kolo_group_factory kolo_runtime)
foreach(library IN ITEMS kolo_mpi kolo_ucx kolo_cuda kolo_nccl_library kolo_nccl)
  if(TARGET ${library})
    list(APPEND libraries ${library})
  endif()
endforeach()
install(TARGETS ${libraries} EXPORT koloTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT koloTargets NAMESPACE kolo:: DESTINATION ${package_folder} COMPONENT library)

# libkolo.so, for the package's component c and for pkg-config.
install(TARGETS kolo_c EXPORT koloCTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT koloCTargets NAMESPACE kolo:: DESTINATION ${package_folder} COMPONENT library)
# pkg-config files: kolo for the C interface, kolo-cxx for the C++ interface with its static
# libraries.
set(kolo_cxx_libraries ${libraries})
set(kolo_cxx_dependencies "")
if(KOLO_WITH_MPI)
  list(REMOVE_ITEM kolo_cxx_libraries kolo_rendezvous_factory_without_mpi)
  find_package(MPI REQUIRED COMPONENTS CXX)
  list(APPEND kolo_cxx_dependencies ${MPI_CXX_LIBRARIES})
endif()
if(TARGET CUDA::cudart)
  list(APPEND kolo_cxx_dependencies $<TARGET_FILE:CUDA::cudart>)
endif()
# The prefix is relative to the file, so that `cmake --install --prefix` and moved folders work.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
  OUTPUT_VARIABLE prefix_from_pkgconfig)
list(TRANSFORM kolo_cxx_libraries PREPEND -l)
list(JOIN kolo_cxx_libraries " " kolo_cxx_libraries)
list(JOIN kolo_cxx_dependencies " " kolo_cxx_dependencies)
configure_file(scripts/cmake/kolo.pc.in kolo.pc @ONLY)
configure_file(scripts/cmake/kolo-cxx.pc.in kolo-cxx.pc.in @ONLY)
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/kolo-cxx.pc INPUT ${CMAKE_CURRENT_BINARY_DIR}/kolo-cxx.pc.in)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kolo.pc ${CMAKE_CURRENT_BINARY_DIR}/kolo-cxx.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)

configure_package_config_file(scripts/cmake/koloConfig.cmake.in koloConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(koloConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
    ${CMAKE_CURRENT_BINARY_DIR}/koloConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/koloConfigVersion.cmake
    scripts/cmake/FindCUDNN.cmake
  DESTINATION ${package_folder} COMPONENT library)

foreach(program IN ITEMS kolo-train kolo-bench kolo-sim kolo-topo)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
  endif()
endforeach()
