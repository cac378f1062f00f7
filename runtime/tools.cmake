# Command-line tools of the runtime.
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)

kolo_executable(kolo-topo
  SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/topo_main.cc
    ${CMAKE_CURRENT_LIST_DIR}/topo_gpus.cc
    ${CMAKE_CURRENT_LIST_DIR}/topo_report.cc
  LINK kolo::runtime kolo::rendezvous_factory kolo::gpu_discovery CLI11::CLI11 nlohmann_json::nlohmann_json fmt::fmt)
