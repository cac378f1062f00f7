#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/collective/collective_case.h"
#include "comm/base/error.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Throws KoloError(kConfig).
[[noreturn]] inline void refuse(std::string what) {
  throw KoloError({.code = ErrorCode::kConfig, .what = std::move(what)});
}

/// One algorithm for one case: prepared once, run many times.
class CollectiveRun {
 public:
  virtual ~CollectiveRun() = default;
  /// Copies `count()` elements of the case to the contribution, or from the result.
  virtual void write(const void* elements) = 0;
  virtual void read(void* elements) = 0;
  /// Copies the contribution after a run; in place that is the result.
  virtual void read_contribution(void* elements) = 0;
  /// Called before each timed `run`, for systems whose ranks must begin together.
  virtual void align() {}
  /// Blocks until the result is complete.
  virtual void run() = 0;
  /// Called after a series of runs: when it returns, no rank waits in `run` for bytes that this
  /// rank has not sent yet. For systems that send only inside their calls.
  virtual void settle() {}
  virtual std::string algorithm() const = 0;
};

/// Refuses a case for `system`, which does not support the combination of dtype and operation.
[[noreturn]] inline void refuse(std::string_view system, const CollectiveCase& what) {
  refuse(fmt::format("{0} is not compared for {1} of {2}; leave {0} out of --compare", system,
                     to_string(what.op), to_string(what.dtype)));
}

/// A system under measurement.
class CollectiveSystem {
 public:
  virtual ~CollectiveSystem() = default;
  virtual std::string name() const = 0;
  /// Name and version of the underlying library, if there are several to choose from.
  virtual std::optional<std::string> library() const { return std::nullopt; }
  /// The runtime whose barrier aligns its calls; null: the benchmark's.
  virtual Runtime* runtime() { return nullptr; }
  /// True if it has its own memory that is faster than the caller's. A system without such memory
  /// is measured once for both homes.
  virtual bool has_arena() const { return false; }
  /// True if its results can be checked; a limit or a reference only moves the bytes.
  virtual bool sums() const { return true; }
  /// True if it is measured for this size.
  virtual bool covers([[maybe_unused]] std::size_t bytes) const { return true; }
  /// Every algorithm that it has for the case, at least one; the best one counts. Collective.
  /// Errors: KoloError(kConfig) if it does not support the case.
  virtual std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) = 0;
  /// Payload bytes sent to other nodes so far, if the system counts them.
  virtual std::optional<std::uint64_t> wire_bytes() const { return std::nullopt; }
};

/// All-reduces run as a gradient set of one gradient, as in training; out of place, the time
/// includes the copy of the contribution to the gradient. Reductions that gradients do not support,
/// and other collectives, are direct calls. Cases in device memory use the runtime's device.
/// `runtime` outlives the system.
std::unique_ptr<CollectiveSystem> make_kolo_system(Runtime& runtime);

}  // namespace kolo::bench
