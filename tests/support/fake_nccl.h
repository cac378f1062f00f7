#pragma once

#include <nccl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/base/mutex.h"

namespace kolo::test {

/// Replaces NCCL, and the few CUDA calls that it needs, without a GPU: a program that links
/// fake_nccl.cc calls it instead of the libraries. It moves no data. It imitates non-blocking
/// communicators: every call may be in progress for a while, or forever.
///
/// Threads: any for `called` and `open_gate`; set members only while no communicator is in use.
struct FakeNccl {
  int version = NCCL_VERSION_CODE;
  int polls_in_progress = 0;               ///< Number of polls before a call is done.
  bool stuck = false;                      ///< Calls that begin now stay in progress.
  ncclResult_t async_error = ncclSuccess;  ///< Error of all communicators.
  bool allocates = true;
  bool registers = true;

  /// Aborts do not return while the gate is closed.
  void close_gate();
  void open_gate();

  void record(const std::string& call);
  void pass_gate();
  /// How often a function was called.
  std::ptrdiff_t called(const std::string& function);
  /// All calls except polls, in order.
  std::vector<std::string> calls();

 private:
  Mutex mutex_;
  ConditionVariable opened_;
  bool gate_is_open_ KOLO_GUARDED_BY(mutex_) = true;
  std::vector<std::string> calls_ KOLO_GUARDED_BY(mutex_);
};

/// The library in use; set by `FakeNcclScope`.
FakeNccl& fake_nccl();

/// A new library for the duration of one test.
class FakeNcclScope {
 public:
  FakeNcclScope();
  ~FakeNcclScope();
  FakeNcclScope(const FakeNcclScope&) = delete;
  FakeNcclScope& operator=(const FakeNcclScope&) = delete;
};

}  // namespace kolo::test
