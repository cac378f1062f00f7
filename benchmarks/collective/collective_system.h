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

/// Throws KoloError(kConfig) with the text `what`.
[[noreturn]] inline void refuse(std::string what) {
  throw KoloError({.code = ErrorCode::kConfig, .what = std::move(what)});
}

/// One algorithm for one case. It is prepared once and run many times.
class CollectiveRun {
 public:
  virtual ~CollectiveRun() = default;
  /// `write` copies `elements` to the contribution; `read` copies the result to `elements`.
  virtual void write(const void* elements) = 0;
  virtual void read(void* elements) = 0;
  /// Copies the contribution as it is after a run. In place, the result has overwritten it.
  virtual void read_contribution(void* elements) = 0;
  /// Overwrites the result, so that it cannot pass for that of the next run. In place, it
  /// overwrites the contribution too, so a `write` must follow.
  virtual void forget() {}
  /// Aligns the ranks before a timed `run`, if the system requires that they begin together.
  virtual void align() {}
  /// Blocks until the result is complete.
  virtual void run() = 0;
  /// Completes a series of runs: after it returns, no rank waits in `run` for bytes that this rank
  /// has not sent yet. Only a system that sends nothing outside its calls overrides it.
  virtual void settle() {}
  virtual std::string algorithm() const = 0;
};

/// Refuses a case because `system` does not support its combination of dtype and operation.
[[noreturn]] inline void refuse(std::string_view system, const CollectiveCase& what) {
  refuse(fmt::format("{0} is not compared for {1} of {2}; leave {0} out of --compare", system,
                     to_string(what.op), to_string(what.dtype)));
}

/// A system under measurement.
class CollectiveSystem {
 public:
  virtual ~CollectiveSystem() = default;
  virtual std::string name() const = 0;
  /// Returns the name and version of the underlying library, if several libraries can be chosen.
  virtual std::optional<std::string> library() const { return std::nullopt; }
  /// Returns the runtime whose barrier aligns this system's calls; null: the benchmark's runtime.
  virtual Runtime* runtime() { return nullptr; }
  /// Returns whether the system has memory of its own that is faster than the caller's. A system
  /// without such memory is measured only once, not for each home.
  virtual bool has_arena() const { return false; }
  /// Returns whether the results can be checked. A limit or a reference only moves bytes.
  virtual bool sums() const { return true; }
  /// Returns whether the system is measured for this size.
  virtual bool covers([[maybe_unused]] std::size_t bytes) const { return true; }
  /// Returns a run for each algorithm that supports the case, at least one; the fastest one is
  /// reported. Collective. Errors: KoloError(kConfig) if the system does not support the case.
  virtual std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) = 0;
  /// Returns the payload bytes sent to other nodes so far, if the system counts them.
  virtual std::optional<std::uint64_t> wire_bytes() const { return std::nullopt; }
};

/// Makes the system that runs Kolo. All-reduces run as a gradient set of one gradient, as in
/// training; out of place, the time includes the copy of the contribution to the gradient. Other
/// collectives, and reductions that gradients do not support, are direct calls. Cases in device
/// memory use the runtime's device. `runtime` outlives the system.
std::unique_ptr<CollectiveSystem> make_kolo_system(Runtime& runtime);

}  // namespace kolo::bench
