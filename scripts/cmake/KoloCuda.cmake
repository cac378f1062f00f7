# CUDA, NCCL and cuDNN: each is AUTO (used if found), ON (required) or OFF. Sets KOLO_CUDA,
# KOLO_NCCL and KOLO_CUDNN to the features of this build, and defines kolo_cuda_sources.

foreach(feature IN ITEMS CUDA NCCL CUDNN)
  set(KOLO_WITH_${feature} AUTO CACHE STRING "Build with ${feature}: AUTO, ON or OFF")
  set_property(CACHE KOLO_WITH_${feature} PROPERTY STRINGS AUTO ON OFF)
  set(KOLO_${feature} OFF)
endforeach()

if(KOLO_WITH_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  set(KOLO_CUDA ON)
  if(KOLO_WITH_CUDA STREQUAL "AUTO")
    set(KOLO_CUDA ${CMAKE_CUDA_COMPILER})
  endif()
endif()

if(KOLO_CUDA)
  set(KOLO_CUDA ON)
  # Read in every configuration: CMake itself reads CUDAARCHS only in the first one.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT "$ENV{CUDAARCHS}" STREQUAL "")
    set(CMAKE_CUDA_ARCHITECTURES $ENV{CUDAARCHS})
  elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Ampere, Hopper and, from CUDA 12.8 on, Blackwell; the last one also as PTX for later
    # architectures.
    execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --version OUTPUT_VARIABLE cuda_version
      ERROR_QUIET)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
    if(cuda_version MATCHES "release ([0-9.]+)" AND CMAKE_MATCH_1 VERSION_LESS 12.8)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
  endif()
  # Kernels and the code around them use the same compiler, unless the caller says otherwise: no
  # type of the C++ library crosses between them.
  if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  # The run-time library, which C++ sources link, too: Shared, or Static for Python's package.
  if(NOT DEFINED CMAKE_CUDA_RUNTIME_LIBRARY)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(KOLO_CUDART CUDA::cudart)
  if(CMAKE_CUDA_RUNTIME_LIBRARY STREQUAL "Static")
    set(KOLO_CUDART CUDA::cudart_static)
  endif()
  if(NOT CMAKE_CUDA_HOST_COMPILER STREQUAL CMAKE_CXX_COMPILER)
    set(CMAKE_CUDA_IMPLICIT_LINK_LIBRARIES)  # of the other C++ library
  endif()
elseif(KOLO_WITH_NCCL STREQUAL "ON" OR KOLO_WITH_CUDNN STREQUAL "ON")
  message(FATAL_ERROR "KOLO_WITH_NCCL and KOLO_WITH_CUDNN need CUDA, which is off or was not found")
endif()

# kolo_find_gpu_library(NCCL): looks for the library as its switch says.
macro(kolo_find_gpu_library feature)
  if(KOLO_CUDA AND KOLO_WITH_${feature})
    if(KOLO_WITH_${feature} STREQUAL "AUTO")
      find_package(${feature} QUIET)
    else()
      find_package(${feature} REQUIRED)
    endif()
    set(KOLO_${feature} ${${feature}_FOUND})
  endif()
endmacro()
kolo_find_gpu_library(NCCL)
kolo_find_gpu_library(CUDNN)
message(STATUS "Kolo: CUDA ${KOLO_CUDA}, NCCL ${KOLO_NCCL}, cuDNN ${KOLO_CUDNN}")

# kolo_cuda_sources(target a.cu ...): adds CUDA sources to a target, with its warnings.
function(kolo_cuda_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  # Newer versions of CMake would also batch these sources, whose helpers share names.
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # As a flag, because CMake supports CUDA_STANDARD 20 only from 3.26 on.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  target_link_libraries(${target} PUBLIC ${KOLO_CUDART})
endfunction()
