#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/all_reduce/all_reduce_case.h"

namespace kolo::bench {

/// One way to the all-reduce of one case: made once, run many times.
class AllReduceRun {
 public:
  virtual ~AllReduceRun() = default;
  /// Copies `count()` elements of the case to the contribution, or from the sum, wherever they are.
  virtual void write(const void* elements) = 0;
  virtual void read(void* elements) = 0;
  /// Copies the contribution as it is after a run: in place that is the sum.
  virtual void read_contribution(void* elements) = 0;
  /// Called before each timed `run`, for what must begin on all ranks together.
  virtual void align() {}
  /// Blocks until the sum is there.
  virtual void run() = 0;
  /// Called after a series of runs: when it returns, no rank waits in `run` for what this one has
  /// not sent yet. For systems that send only while they are called.
  virtual void settle() {}
  virtual std::string algorithm() const = 0;
};

/// A system under measurement.
class AllReduceSystem {
 public:
  virtual ~AllReduceSystem() = default;
  virtual std::string name() const = 0;
  /// Whether it has memory of its own that is faster than the caller's. One that has none is
  /// measured once for both homes.
  virtual bool has_arena() const { return false; }
  /// Whether its runs make sums that can be checked; a limit only moves the bytes.
  virtual bool sums() const { return true; }
  /// Every way it knows, at least one; its best counts. Collective.
  /// Errors: KoloError(kConfig) if it cannot do the case.
  virtual std::vector<std::unique_ptr<AllReduceRun>> prepare(const AllReduceCase& what) = 0;
  /// Payload bytes sent to other nodes so far, if the system counts them.
  virtual std::optional<std::uint64_t> wire_bytes() const { return std::nullopt; }
};

}  // namespace kolo::bench
