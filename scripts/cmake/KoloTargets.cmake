# kolo_library, kolo_executable and kolo_test: what all targets of this project share.

find_package(Threads REQUIRED)

function(kolo_target_defaults target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow
    $<$<BOOL:${KOLO_WERROR}>:-Werror>
    # False alarms in std::string concatenation, GCC bug 105651, fixed in 13.
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
  if(KOLO_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${KOLO_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${KOLO_SANITIZE})
  endif()
endfunction()

# kolo_library(comm SOURCES ... PUBLIC deps ... PRIVATE deps ...): static library kolo_comm, kolo::comm.
function(kolo_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(kolo_${name} STATIC ${ARG_SOURCES})
  add_library(kolo::${name} ALIAS kolo_${name})
  set_target_properties(kolo_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  kolo_target_defaults(kolo_${name})
  target_link_libraries(kolo_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# kolo_executable(kolo-topo SOURCES ... LINK ...)
function(kolo_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  kolo_target_defaults(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()

# kolo_test(process_grid_test LABEL unit SOURCES ... LINK ...): a GoogleTest binary that is one CTest
# test. LABEL is a tier of tests/README.md; the target <label>_tests builds all tests of a tier. To
# CTest it is skipped only if all of its tests were; for CTest a skip hides a failure.
function(kolo_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(KOLO_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  kolo_target_defaults(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest_main)
  if(NOT TARGET ${ARG_LABEL}_tests)
    add_custom_target(${ARG_LABEL}_tests)
  endif()
  add_dependencies(${ARG_LABEL}_tests ${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
    SKIP_REGULAR_EXPRESSION
    "PASSED  \\] 0 tests[.]\n[^\n]*, listed below:\n(\\[  SKIPPED \\] [^\n]*\n)+$")
endfunction()

# kolo_script_test(check_layers LABEL checks COMMAND scripts/check-layers ...): a command of this
# checkout as a CTest test. Its exit status 77 is a skip, and what it printed is the reason.
function(kolo_script_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "COMMAND" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
    SKIP_RETURN_CODE 77)
endfunction()

# kolo_launched_test(train_4_ranks LABEL procs RANKS 4 NODES 2 COMMAND $<TARGET_FILE:x> ...): a program
# on several ranks of this machine through scripts/launch, which kills it before CTest would; without
# NODES the ranks share the real node.
function(kolo_launched_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT;RANKS;NODES" "COMMAND" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_NODES)
    set(ARG_NODES 0)
  endif()
  math(EXPR rank_limit "${ARG_TIMEOUT} - 10")
  kolo_script_test(${name} LABEL ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
    COMMAND scripts/launch -n ${ARG_RANKS} --nodes ${ARG_NODES} --timeout ${rank_limit} -- ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES PROCESSORS ${ARG_RANKS})
endfunction()
