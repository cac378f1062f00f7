#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/device/cuda_device.h"

namespace kolo::bench {

/// The time that another library takes for the same operation.
struct PeerTime {
  std::string name;
  double us = 0;
};

/// The time of one kernel on one set of data.
struct KernelTime {
  std::string kernel;
  std::size_t bytes = 0;  ///< Minimum number of bytes that the operation reads and writes.
  double us = 0;          ///< Median time in microseconds.
  std::vector<PeerTime> peers = {};
  std::optional<std::size_t> wrong = {};  ///< Number of bytes that are wrong; empty: unchecked.
};

/// Runs and times work on one stream of a GPU.
class GpuBench {
 public:
  /// `bytes` is the size of a measured buffer. It should be large compared to the caches.
  GpuBench(CudaDevice& device, std::size_t bytes, int iterations);

  CudaDevice& device() { return device_; }
  Stream& stream() { return *stream_; }
  void* native() const { return stream_->native(); }
  std::size_t bytes() const { return bytes_; }

  /// Returns the median time of the work that `enqueue` enqueues, in microseconds, measured by CUDA
  /// events after a warm-up. As in training, the stream does not become idle between iterations.
  double median_us(const std::function<void()>& enqueue) { return median_us(enqueue, iterations_); }
  double median_us(const std::function<void()>& enqueue, int iterations);

  DeviceMemory upload(std::span<const std::byte> bytes);
  void overwrite(const DeviceMemory& memory, std::span<const std::byte> bytes);
  std::vector<std::byte> download(const DeviceMemory& memory, std::size_t bytes);

 private:
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using TimedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;
  static TimedEvent make_timed_event();

  CudaDevice& device_;
  const std::size_t bytes_;
  const int iterations_;
  std::unique_ptr<Stream> stream_;
};

/// Returns floats between -2 and 2, most of them close to 0. Equal seeds give equal floats.
std::vector<float> random_floats(std::size_t count, std::uint64_t seed);

/// Returns the number of bytes that differ.
std::size_t count_wrong(std::span<const std::byte> actual, std::span<const std::byte> expected);

/// A named measurement that returns one row for each kernel and data set.
struct Measurement {
  std::string name;
  std::function<std::vector<KernelTime>(GpuBench&)> measure;
};
std::vector<KernelTime> measure_batched_copies(GpuBench& bench);

/// Enqueues an operation of CUB on a cudaStream_t. The functions below return such calls for the
/// operations that are compared with Kolo's; their arguments have CUB's order, and all pointers are
/// to device memory.
using CubCall = std::function<void(void* cuda_stream)>;

/// cub::DeviceMemcpy::Batched copies sizes[i] bytes from sources[i] to targets[i].
CubCall cub_batched_copy(Device& device, const void* const* sources, void* const* targets,
                         const std::size_t* sizes, std::uint32_t count);
/// cub::DeviceRadixSort::SortPairsDescending sorts all elements by magnitude, so that the first k
/// are the top k. Keys are 31-bit magnitudes.
CubCall cub_sort_pairs(Device& device, const std::uint32_t* keys, const std::uint32_t* indices,
                       std::size_t count);

/// The main function of a benchmark of GPU kernels. It parses options, measures a copy inside the
/// device as the upper bound, runs the measurements, and prints a table and JSON rows {kernel,
/// bytes, us, share_of_copy, floor_us, wrong, peer, peer_us}; unknown fields are null. Returns the
/// exit status: 77 without a CUDA device, 1 for wrong results.
int gpu_bench_main(int argc, char** argv, const std::string& description,
                   const std::vector<Measurement>& measurements);

}  // namespace kolo::bench
