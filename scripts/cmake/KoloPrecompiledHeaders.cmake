# kolo_precompile(target kind): parses the headers that most sources of a kind include once for all
# of them.
#
# The precompiled headers are those of the standard library, GoogleTest and CLI11, which do not
# change during development. A source still includes what it uses: the preset `clang` compiles
# without precompiled headers. ccache needs CCACHE_SLOPPINESS=pch_defines,time_macros, which
# KoloCompilerCache sets.
#
# Sources with their own flags set SKIP_PRECOMPILE_HEADERS, because they cannot use headers that
# were parsed without these flags.
#
# The kinds are compiled with different flags (-fPIC, -O0, sanitizers), so each has its own
# precompiled headers.

option(KOLO_PRECOMPILED_HEADERS "Parse the most used headers once" ${PROJECT_IS_TOP_LEVEL})

set(standard_headers <algorithm> <array> <atomic> <chrono> <cmath> <cstddef> <cstdint> <cstring> <functional> <limits>
  <map> <memory> <mutex> <numeric> <optional> <span> <string> <string_view> <utility> <vector>)
set(precompiled_for_library ${standard_headers})
set(precompiled_for_test ${standard_headers} <filesystem> <initializer_list> <random> <set> <stdexcept> <thread>
  <gmock/gmock.h> <gtest/gtest.h>)
set(precompiled_for_program ${standard_headers} <iostream> <CLI/CLI.hpp>)

function(kolo_precompile target kind)
  if(NOT KOLO_PRECOMPILED_HEADERS)
    return()
  endif()
  set(headers kolo_${kind}_headers)
  if(NOT TARGET ${headers})
    file(CONFIGURE OUTPUT ${headers}.cc CONTENT "// Holds the precompiled headers of ${kind} sources.\n")
    add_library(${headers} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${headers}.cc)
    cmake_language(CALL kolo_${kind}_defaults ${headers})
    target_precompile_headers(${headers} PRIVATE ${precompiled_for_${kind}})
    # Else Clang refuses a precompiled header that ccache kept from another build of this folder.
    target_compile_options(${headers} PRIVATE
      "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
  # ccache preprocesses sources first, and needs this flag.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  # At -O3 GCC 12 has false warnings of concatenated strings if the standard library is in a
  # precompiled header: GCC bugs 105329 and 105651.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13
      AND CMAKE_CXX_FLAGS_RELEASE MATCHES "-O3")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
  endif()
endfunction()
