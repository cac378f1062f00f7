#include "benchmarks/gpu/gpu_bench.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "comm/base/output_file.h"
#include "comm/device/cuda_device.h"
#include "comm/device/cuda_error.h"

namespace kolo::bench {

GpuBench::TimedEvent GpuBench::make_timed_event() {
  cudaEvent_t event = nullptr;
  require_cuda(cudaEventCreate(&event), "cudaEventCreate");
  return TimedEvent(event);
}

GpuBench::GpuBench(CudaDevice& device, std::size_t bytes, int iterations)
    : device_(device), bytes_(bytes), iterations_(iterations), stream_(device.make_stream()) {}

double GpuBench::median_us(const std::function<void()>& enqueue, int iterations) {
  const auto stream = static_cast<cudaStream_t>(native());
  std::vector<TimedEvent> events;
  for (int i = 0; i <= iterations; ++i) events.push_back(make_timed_event());
  for (int i = 0; i < 3; ++i) enqueue();
  require_cuda(cudaEventRecord(events.front().get(), stream), "cudaEventRecord");
  for (std::size_t i = 1; i < events.size(); ++i) {
    enqueue();
    require_cuda(cudaEventRecord(events[i].get(), stream), "cudaEventRecord");
  }
  require_cuda(cudaEventSynchronize(events.back().get()), "cudaEventSynchronize");
  std::vector<float> times(static_cast<std::size_t>(iterations));
  for (std::size_t i = 0; i < times.size(); ++i) {
    require_cuda(cudaEventElapsedTime(&times[i], events[i].get(), events[i + 1].get()),
                 "cudaEventElapsedTime");
  }
  const auto middle = times.begin() + iterations / 2;
  std::nth_element(times.begin(), middle, times.end());
  return 1e3 * static_cast<double>(*middle);
}

DeviceMemory GpuBench::upload(std::span<const std::byte> bytes) {
  DeviceMemory memory = device_.allocate(bytes.size(), MemoryKind::kDevice);
  overwrite(memory, bytes);
  return memory;
}

void GpuBench::overwrite(const DeviceMemory& memory, std::span<const std::byte> bytes) {
  require_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(native())), "cudaStreamSynchronize");
  require_cuda(cudaMemcpy(memory.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
               "cudaMemcpy");
}

std::vector<std::byte> GpuBench::download(const DeviceMemory& memory, std::size_t bytes) {
  std::vector<std::byte> result(bytes);
  require_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(native())), "cudaStreamSynchronize");
  require_cuda(cudaMemcpy(result.data(), memory.data(), bytes, cudaMemcpyDeviceToHost),
               "cudaMemcpy");
  return result;
}

std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    // Each value is the sum of four uniform numbers in [-0.5, 0.5).
    const std::uint64_t bits = random();
    value = 0;
    for (int i = 0; i < 4; ++i) {
      value += static_cast<float>(bits >> (16 * i) & 0xffff) / 65536.0f - 0.5f;
    }
  }
  return values;
}

std::size_t count_wrong(std::span<const std::byte> actual, std::span<const std::byte> expected) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) wrong += actual[i] != expected[i];
  return wrong;
}

namespace {

constexpr int kSkipped = 77;

/// Measures a copy inside the device; returns the bytes read plus written per microsecond.
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

/// Runs the measurements whose name is `only`; empty: all of them.
int run(const std::vector<Measurement>& measurements, const std::string& only,
        std::size_t mebibytes, int iterations, const std::string& json_file) {
  CudaDevice device(0);
  GpuBench bench(device, mebibytes << 20, iterations);
  Report report{.copy_speed = measure_copy_speed(bench)};
  fmt::print("# {}\n# copy inside the device: {:.0f} GB/s, read and written, {} MiB\n",
             device.describe(), report.copy_speed / 1e3, mebibytes);
  report.print_header();
  for (const Measurement& measure : measurements) {
    if (!only.empty() && only != measure.name) continue;
    for (const KernelTime& time : measure.measure(bench)) report.add(time);
    if (json_file.empty()) continue;
    // After each measurement, so that a program that runs out of time leaves what it has.
    const nlohmann::json json = {{"device", device.describe()},
                                 {"copy_gb_per_s", report.copy_speed / 1e3},
                                 {"buffer_mib", mebibytes},
                                 {"rows", report.rows}};
    write_file(json_file, json.dump(1) + '\n');
  }
  return report.wrong == 0 ? 0 : 1;
}

}  // namespace

int gpu_bench_main(int argc, char** argv, const std::string& description,
                   const std::vector<Measurement>& measurements) {
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
