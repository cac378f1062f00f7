#include "benchmarks/gpu/gpu_bench_main.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/device/cuda_availability.h"
#include "comm/device/cuda_error.h"

namespace kolo::bench {
namespace {

constexpr int kSkipped = 77;

/// Bytes read and written per microsecond by a copy inside the device.
double measure_copy_speed(GpuBench& bench) {
  const DeviceMemory from = bench.device().allocate(bench.bytes(), MemoryKind::kDevice);
  const DeviceMemory to = bench.device().allocate(bench.bytes(), MemoryKind::kDevice);
  const auto view = [&](const DeviceMemory& memory) {
    return BufferView{memory.data(), memory.bytes(), DType::kUInt8, MemoryKind::kDevice};
  };
  const double us = bench.median_us([&] { bench.stream().copy(view(to), view(from)); });
  return 2 * static_cast<double>(bench.bytes()) / us;
}

struct Report {
  double copy_speed = 0;
  nlohmann::json rows = nlohmann::json::array();
  std::size_t wrong = 0;

  void print_header() const {
    fmt::print("{:<48} {:>12} {:>10} {:>10} {:>6} {:>10} {:>6}  {}\n", "kernel", "bytes", "us",
               "floor_us", "share", "peer_us", "wrong", "peer");
  }

  void add(const KernelTime& time) {
    const double floor_us = static_cast<double>(time.bytes) / copy_speed;
    const std::string checked = time.wrong ? std::to_string(*time.wrong) : "-";
    const auto row = [&](const PeerTime& peer) {
      const std::string peer_us = peer.name.empty() ? "-" : fmt::format("{:.1f}", peer.us);
      fmt::print("{:<48} {:>12} {:>10.1f} {:>10.1f} {:>6.3f} {:>10} {:>6}  {}\n", time.kernel,
                 time.bytes, time.us, floor_us, floor_us / time.us, peer_us, checked, peer.name);
      nlohmann::json json = {{"kernel", time.kernel},
                             {"bytes", time.bytes},
                             {"us", time.us},
                             {"share_of_copy", floor_us / time.us},
                             {"floor_us", floor_us}};
      json["wrong"] = time.wrong ? nlohmann::json(*time.wrong) : nlohmann::json();
      json["peer"] = peer.name.empty() ? nlohmann::json() : nlohmann::json(peer.name);
      json["peer_us"] = peer.name.empty() ? nlohmann::json() : nlohmann::json(peer.us);
      rows.push_back(json);
    };
    if (time.peers.empty()) row({});
    for (const PeerTime& peer : time.peers) row(peer);
    wrong += time.wrong.value_or(0);
  }
};

/// `only`: the measurements of this name; empty: all.
int run(std::span<const Measurement> measurements, const std::string& only, std::size_t mebibytes,
        int iterations, const std::string& json_file) {
  CudaDevice device(0);
  GpuBench bench(device, mebibytes << 20, iterations);
  Report report{.copy_speed = measure_copy_speed(bench)};
  fmt::print("# {}\n# copy inside the device: {:.0f} GB/s, read and written, {} MiB\n",
             device.describe(), report.copy_speed / 1e3, mebibytes);
  report.print_header();
  for (const Measurement& measure : measurements) {
    if (!only.empty() && only != measure.name) continue;
    for (const KernelTime& time : measure.measure(bench)) report.add(time);
  }
  if (!json_file.empty()) {
    const nlohmann::json json = {{"device", device.describe()},
                                 {"copy_gb_per_s", report.copy_speed / 1e3},
                                 {"buffer_mib", mebibytes},
                                 {"rows", report.rows}};
    std::ofstream file(json_file);
    file << json.dump(1) << '\n';
    if (!file.flush()) {
      fmt::print(stderr, "cannot write {}\n", json_file);
      return exit_status(ErrorCode::kIo);
    }
  }
  return report.wrong == 0 ? 0 : 1;
}

}  // namespace

int gpu_bench_main(int argc, char** argv, const std::string& description,
                   std::span<const Measurement> measurements) {
  CLI::App app(description);
  std::size_t mebibytes = 256;
  int iterations = 50;
  std::string only, json_file;
  std::vector<std::string> names;
  for (const Measurement& measurement : measurements) names.push_back(measurement.name);
  app.add_option("--only", only, "Measure these kernels and no others")
      ->check(CLI::IsMember(names));
  app.add_option("--mib", mebibytes, "Size of a buffer in MiB")->check(CLI::Range(1, 8192));
  app.add_option("--iterations", iterations, "Timed runs per kernel")->check(CLI::Range(1, 100000));
  app.add_option("--json", json_file, "Write the rows to this file");
  CLI11_PARSE(app, argc, argv);
  const CudaAvailability found = find_cuda_devices();
  if (found.device_count == 0) {
    fmt::print("no CUDA device: {}\n", found.reason);
    return kSkipped;
  }
  try {
    return run(measurements, only, mebibytes, iterations, json_file);
  } catch (const KoloError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return exit_status(error.error().code);
  }
}

}  // namespace kolo::bench
