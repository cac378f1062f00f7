#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "comm/base/mutex.h"

namespace kolo::test {

/// Replaces the CUDA runtime on machines without a GPU. A program that links fake_cuda.cc calls it
/// instead of the library. Memory of devices is host memory, copies are made at once, and kernels
/// do nothing. Threads: any.
struct FakeCuda {
  FakeCuda() = default;
  ~FakeCuda();  ///< Frees what was leaked.
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  std::atomic<int> devices{2};
  /// Whether a thread captures a graph in CUDA's global mode: every call that is not on the
  /// captured stream then fails and ends the capture, unless its thread is in the relaxed mode.
  std::atomic<bool> captures{false};
  std::atomic<bool> has_lost_capture{false};
  /// Whether a kernel spins for ever, so that no event is done.
  std::atomic<bool> spins{false};
  /// Number of calls, by the thread that made this object, that would wait for a kernel that spins.
  std::atomic<int> waits{0};
  const std::thread::id maker = std::this_thread::get_id();
  /// The most allocations at a time; more are an error for lack of memory.
  std::atomic<std::size_t> room{SIZE_MAX};
  /// The device that was current when a stream was last asked whether it captures.
  std::atomic<int> asked_device{-1};
  std::atomic<int> last_priority{0};  ///< That of the last stream; 0 is normal, -5 the highest.
  /// Number of kernels that were launched before they were loaded.
  std::atomic<int> lazy_loads{0};
  std::atomic<int> launches{0};

  /// Allocates memory of a kind on the current device of the thread; null if there is no room.
  void* allocate(std::size_t bytes, cudaMemoryType kind) KOLO_EXCLUDES(mutex_);
  void free(void* data) KOLO_EXCLUDES(mutex_);
  /// Returns the attributes of the memory that contains `data`.
  cudaPointerAttributes find(const void* data) KOLO_EXCLUDES(mutex_);
  /// Returns the number of allocations that were not freed.
  std::size_t in_use() KOLO_EXCLUDES(mutex_);

  void load(const void* kernel) KOLO_EXCLUDES(mutex_);
  void launch(const void* kernel) KOLO_EXCLUDES(mutex_);

 private:
  struct Block {
    std::size_t bytes;
    cudaPointerAttributes attributes;
  };

  Mutex mutex_;
  std::map<const char*, Block> blocks_ KOLO_GUARDED_BY(mutex_);
  std::set<const void*> loaded_ KOLO_GUARDED_BY(mutex_);
};

/// Returns the runtime in use; `FakeNcclScope` creates it.
FakeCuda& fake_cuda();
void renew_fake_cuda();

/// Waits until no kernel spins; the thread that made the runtime only counts the call. Returns as
/// `refuse_during_capture`.
cudaError_t wait_for_device();
/// Returns the error of a call that a capture forbids to this thread; notes that it is lost.
cudaError_t refuse_during_capture();

}  // namespace kolo::test
