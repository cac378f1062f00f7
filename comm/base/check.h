#pragma once

#include <concepts>
#include <limits>
#include <string>
#include <string_view>

#include "comm/base/error.h"

namespace kolo {

/// Throws `UsageError` with the text `what` unless `condition` holds. For mistakes of the caller.
inline void check(bool condition, std::string_view what) {
  if (!condition) throw_usage_error(what.data(), what.size());
}

/// Throws `UsageError` unless `condition` holds. `what` returns the text, and is called for a
/// mistake only, because a text with values costs more to format than a call may take.
template <std::invocable Text>
void check(bool condition, const Text& what) {
  if (!condition) throw UsageError(what());
}

/// Throws `KoloError(kInternal)` that names the source line unless `condition` holds. For
/// invariants of Kolo itself. (Clang 14 lacks std::source_location.)
inline void ensure(bool condition, std::string_view what, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  if (!condition) throw_internal_error(what.data(), what.size(), file, line);
}

/// Casts an integer. Throws `UsageError` if the value does not fit in `To`.
template <std::integral To, std::integral From>
To narrow(From value) {
  const To result = static_cast<To>(value);
  check(static_cast<From>(result) == value && ((result < To{}) == (value < From{})),
        "number does not fit its type");
  return result;
}

}  // namespace kolo
