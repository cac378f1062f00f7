#pragma once

#include <string_view>

#include "comm/base/error.h"

namespace kolo {

/// The engine's current activity, for the error that names it.
struct Activity {
  std::string_view verb = {};    ///< As `Error::verb`.
  std::string_view bucket = {};  ///< Bucket or set, if one is at work.
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
