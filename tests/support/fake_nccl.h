#pragma once

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "comm/base/mutex.h"

namespace kolo::test {

/// Bytes of an allocation for which Kolo asks NCCL.
inline constexpr std::size_t kFromNccl = std::size_t{2} << 20;

/// Replaces NCCL on machines without a GPU, with fake_cuda.cc. A program that links fake_nccl.cc
/// calls it instead of the library. It moves no data. It imitates non-blocking communicators: every
/// call may be in progress for a while, until the peers make theirs, or forever.
///
/// Threads: any thread may call `called` and `open_gate`; members may be set only while no
/// communicator is in use.
struct FakeNccl {
  int version = NCCL_VERSION_CODE;
  int polls_in_progress = 0;  ///< Number of polls until a call is complete.
  bool stuck = false;         ///< Whether new calls stay in progress forever.
  bool meets = false;         ///< Whether launches stay in progress until all ranks have launched.
  char groups = 0;            ///< Number of unique ids.
  ncclResult_t async_error = ncclSuccess;  ///< The asynchronous error of all communicators.
  bool allocates = true;
  bool registers = true;
  std::ptrdiff_t hangs = -1;  ///< The abort that a closed gate blocks, counted from 0; -1: all.
  std::atomic<int> most_blocks{0};  ///< `maxCTAs` of the last communicator.

  /// Makes aborts, and calls that connect or end blocking communicators, block until `open_gate` is
  /// called.
  void close_gate();
  void open_gate();

  /// Records a call; returns the number of earlier calls of this name.
  std::ptrdiff_t record(const std::string& call);
  void pass_gate(std::ptrdiff_t abort);
  /// Counts a launch of a rank of a group of `size` ranks, if launches meet.
  void launch(char group, int rank, int size);
  /// Returns whether all ranks of the group have launched as often as `rank`.
  bool has_met(char group, int rank);
  /// Returns the number of calls of a function.
  std::ptrdiff_t called(const std::string& function);
  /// Returns all calls except polls, in order.
  std::vector<std::string> calls();

 private:
  Mutex mutex_;
  ConditionVariable opened_;
  bool gate_is_open_ KOLO_GUARDED_BY(mutex_) = true;
  std::vector<std::string> calls_ KOLO_GUARDED_BY(mutex_);
  std::map<char, std::vector<int>> launches_ KOLO_GUARDED_BY(mutex_);  // by group and rank
};

/// Returns the library in use, which `FakeNcclScope` creates.
FakeNccl& fake_nccl();

/// Creates a new library, and a new CUDA, for the lifetime of this object, which is one test.
class FakeNcclScope {
 public:
  FakeNcclScope();
  ~FakeNcclScope();
  FakeNcclScope(const FakeNcclScope&) = delete;
  FakeNcclScope& operator=(const FakeNcclScope&) = delete;
};

}  // namespace kolo::test
