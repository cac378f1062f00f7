# CUDNN::cudnn: searched below CUDNN_ROOT, CMAKE_PREFIX_PATH and the CUDA toolkit. Also finds a
# library whose name has a version, as in Python's wheels. Sets CUDNN_VERSION.

find_path(CUDNN_INCLUDE_DIR cudnn_version.h
  HINTS ENV CUDNN_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9
  HINTS ENV CUDNN_ROOT ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)

if(CUDNN_INCLUDE_DIR)
  set(CUDNN_VERSION "")
  foreach(part IN ITEMS MAJOR MINOR PATCHLEVEL)
    file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h line REGEX "^#define CUDNN_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND CUDNN_VERSION ${number})
  endforeach()
  list(JOIN CUDNN_VERSION "." CUDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN
  REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)

if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES
    IMPORTED_LOCATION ${CUDNN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
endif()
