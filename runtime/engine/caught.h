#pragma once

#include <string_view>

#include "comm/base/error.h"

namespace kolo {

/// What the engine does at the moment, for the error that names it.
struct Activity {
  std::string_view verb = {};    ///< As `Error::verb`.
  std::string_view bucket = {};  ///< Bucket or set, if it is at one.
};

/// The exception that is being handled, as an error of `rank`. A KoloError keeps what it says, and
/// gets what it leaves out; without memory it is kResources, everything else kInternal.
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
