# Runs compilers through ccache if it is installed. To disable it: -DCMAKE_CXX_COMPILER_LAUNCHER=
# (and -DCMAKE_CUDA_COMPILER_LAUNCHER=).

find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(NOT CCACHE_PROGRAM)
  return()
endif()
foreach(language IN ITEMS CXX CUDA)
  if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_${language}_COMPILER_LAUNCHER})
    # Without this sloppiness, sources with precompiled headers never hit the cache.
    set(CMAKE_${language}_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM}
      CACHE STRING "What the compiler of ${language} runs through")
  endif()
endforeach()
