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

/// A peer's implementation of the same operation.
struct PeerTime {
  std::string name;
  double us = 0;
};

/// One kernel on one set of data.
struct KernelTime {
  std::string kernel;
  std::size_t bytes = 0;  ///< Least number of bytes read and written.
  double us = 0;          ///< Median.
  std::vector<PeerTime> peers = {};
  std::optional<std::size_t> wrong = {};  ///< Bytes that differ from the reference; empty:
                                          ///< unchecked.
};

/// A GPU with one stream, and the way its time is measured.
class GpuBench {
 public:
  /// `bytes` is the size of a buffer, which should be large compared to the caches.
  GpuBench(CudaDevice& device, std::size_t bytes, int iterations);

  CudaDevice& device() { return device_; }
  Stream& stream() { return *stream_; }
  void* native() const { return stream_->native(); }
  std::size_t bytes() const { return bytes_; }

  /// Median time in microseconds of the work enqueued by `enqueue`, measured by CUDA events after a
  /// warm-up. As in training, the stream does not become idle between iterations.
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

/// Floats between -2 and 2, most of them small; equal for equal seeds.
std::vector<float> random_floats(std::size_t count, std::uint64_t seed);

/// Number of bytes that differ.
std::size_t count_wrong(std::span<const std::byte> actual, std::span<const std::byte> expected);

/// One question: kernels with their own data.
struct Measurement {
  std::string name;
  std::function<std::vector<KernelTime>(GpuBench&)> measure;
};
std::vector<KernelTime> measure_batched_copies(GpuBench& bench);

/// Peers for the same operations from CUB, in the order of CUB's arguments. All pointers are device
/// memory; each call of a returned function enqueues work on a cudaStream_t.
using CubCall = std::function<void(void* cuda_stream)>;

/// cub::DeviceMemcpy::Batched: copies sizes[i] bytes from sources[i] to targets[i].
CubCall cub_batched_copy(Device& device, const void* const* sources, void* const* targets,
                         const std::size_t* sizes, std::uint32_t count);
/// cub::DeviceRadixSort::SortPairsDescending: sorts all elements by magnitude; the first k are the
/// answer. Keys are 31-bit magnitudes.
CubCall cub_sort_pairs(Device& device, const std::uint32_t* keys, const std::uint32_t* indices,
                       std::size_t count);

/// The main function of a benchmark of GPU kernels. It parses options, measures a copy inside the
/// device as the upper bound, runs the measurements, and prints a table and JSON rows {kernel,
/// bytes, us, share_of_copy, floor_us, wrong, peer, peer_us}, null where unknown. Returns the exit
/// status: 77 without a CUDA device, 1 for wrong results.
int gpu_bench_main(int argc, char** argv, const std::string& description,
                   const std::vector<Measurement>& measurements);

}  // namespace kolo::bench
