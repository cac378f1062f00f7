# Command-line tools of the runtime.
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)

kolo_library(command_line
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/command_line.cc
  PUBLIC kolo::runtime
  PRIVATE CLI11::CLI11 fmt::fmt)

kolo_library(topo_report
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/topo_gpus.cc
    ${CMAKE_CURRENT_LIST_DIR}/topo_report.cc
  PUBLIC kolo::runtime kolo::gpu_discovery nlohmann_json::nlohmann_json
  PRIVATE fmt::fmt)
kolo_executable(kolo-topo
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/topo_main.cc
  LINK kolo::command_line kolo::topo_report kolo::rendezvous_factory CLI11::CLI11 fmt::fmt)
