# NCCL::nccl: NCCL's headers, searched below NCCL_ROOT, CMAKE_PREFIX_PATH and the CUDA toolkit. Sets
# NCCL_VERSION. The library is loaded at run time.

find_path(NCCL_INCLUDE_DIR nccl.h
  HINTS ENV NCCL_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)

if(NCCL_INCLUDE_DIR)
  set(NCCL_VERSION "")
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h line REGEX "^#define NCCL_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND NCCL_VERSION ${number})
  endforeach()
  list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl INTERFACE IMPORTED)
  target_include_directories(NCCL::nccl INTERFACE ${NCCL_INCLUDE_DIR})
endif()
