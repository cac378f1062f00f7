#pragma once

#include <nccl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/base/mutex.h"

namespace kolo::test {

/// NCCL, and the few calls of CUDA that go with it, without a GPU: a program that links
/// fake_nccl.cc calls this instead of the libraries. It moves no data; it plays how non-blocking
/// communicators behave, above all that every call may be in progress for a while, or for ever.
///
/// Threads: members are set while no communicator is in use; `called`, `open_gate` any.
struct FakeNccl {
  int version = NCCL_VERSION_CODE;
  int polls_in_progress = 0;               ///< Of each call, before it is done.
  bool stuck = false;                      ///< Whatever begins now stays in progress.
  ncclResult_t async_error = ncclSuccess;  ///< Of all communicators.
  bool allocates = true;
  bool registers = true;

  /// Aborts do not return while it is closed.
  void close_gate();
  void open_gate();

  void record(const std::string& call);
  void pass_gate();
  /// How often a function was called.
  std::ptrdiff_t called(const std::string& function);
  /// All calls but polls, in order.
  std::vector<std::string> calls();

 private:
  Mutex mutex_;
  ConditionVariable opened_;
  bool gate_is_open_ KOLO_GUARDED_BY(mutex_) = true;
  std::vector<std::string> calls_ KOLO_GUARDED_BY(mutex_);
};

/// The library that the program calls now; set by `FakeNcclScope`.
FakeNccl& fake_nccl();

/// A new library for the time of one test.
class FakeNcclScope {
 public:
  FakeNcclScope();
  ~FakeNcclScope();
  FakeNcclScope(const FakeNcclScope&) = delete;
  FakeNcclScope& operator=(const FakeNcclScope&) = delete;
};

}  // namespace kolo::test
