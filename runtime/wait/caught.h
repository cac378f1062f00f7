#pragma once

#include <string_view>

#include "comm/base/error.h"
#include "runtime/wait/pulse.h"

namespace kolo {

/// The engine's current activity, for errors that name it and for other threads to read. Threads:
/// the engine's.
class Activity {
 public:
  /// `pulse` may be null; otherwise it must outlive this object.
  explicit Activity(Pulse* pulse = nullptr) : pulse_(pulse) {}

  /// Begins `verb`. `bucket` is the name of the bucket or set that is processed, if there is one.
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

/// Converts the current exception to an error of `rank`. A KoloError keeps its fields, and empty
/// fields are filled in; std::bad_alloc becomes kResources, any other exception kInternal. If there
/// is no memory for texts, they stay empty or short. Precondition: called inside a handler.
Error caught_error(int rank, const Activity& activity) noexcept;

/// Copies an error. If there is no memory for the texts, the copy says only that.
Error copied(const Error& error) noexcept;

/// Calls `step`. Returns false instead of throwing an exception, so that later steps still run.
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
