#pragma once

#include <string_view>

#include "comm/base/error.h"
#include "runtime/wait/pulse.h"

namespace kolo {

/// The engine's current activity, for errors that name it and for other threads to read. Threads:
/// the engine's.
class Activity {
 public:
  /// `pulse`, if there is one, outlives it.
  explicit Activity(Pulse* pulse = nullptr) : pulse_(pulse) {}

  /// `bucket`: the name of a bucket or set, if one is processed.
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

/// The current exception, as an error of `rank`. A KoloError keeps its fields, and empty ones are
/// filled in; std::bad_alloc becomes kResources, any other exception kInternal. Precondition:
/// called inside a handler. Without memory for texts the error has none.
Error caught_error(int rank, const Activity& activity) noexcept;

/// A copy; its texts are empty if there is no memory for them.
Error copied(const Error& error) noexcept;

/// Calls `step`, and ignores an exception, so that later steps still run. Returns whether there was
/// none.
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
