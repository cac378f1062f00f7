#pragma once

#include <string_view>

#include "comm/base/error.h"
#include "runtime/wait/pulse.h"

namespace kolo {

/// The engine's current activity, for the error that names it, and for a look from another thread.
/// Threads: the engine's.
class Activity {
 public:
  /// `pulse`, if there is one, outlives it.
  explicit Activity(Pulse* pulse = nullptr) : pulse_(pulse) {}

  /// `bucket` or set, if one is at work.
  void begin(EngineVerb verb, std::string_view bucket = {}) {
    verb_ = verb;
    bucket_ = bucket;
    if (pulse_ != nullptr) pulse_->beat(verb);
  }

  EngineVerb verb() const { return verb_; }
  std::string_view bucket() const { return bucket_; }

 private:
  Pulse* const pulse_;
  EngineVerb verb_ = EngineVerb::kMark;
  std::string_view bucket_;
};

/// The exception that is being handled, as an error of `rank`. A KoloError keeps its fields, and
/// empty ones are filled in; std::bad_alloc is kResources, everything else kInternal.
/// Before: inside a handler. Without memory for texts the error has none.
Error caught_error(int rank, const Activity& activity) noexcept;

/// A copy, for which texts are left out when there is no memory for them.
Error copied(const Error& error) noexcept;

/// Calls `step`. Returns whether it did not throw, for what must not stop what comes after it.
template <typename Step>
bool succeeds(const Step& step) noexcept {
  try {
    step();
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace kolo
