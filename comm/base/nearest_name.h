#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kolo {

/// The one of `names` that `text` is most likely a misspelling of: it differs in at most two
/// letters, or begins with `text`. Nothing if none is that near. Pure.
std::optional<std::string> nearest_name(std::string_view text, std::span<const std::string> names);

/// "'rign' is not ring, direct or tree; did you mean ring?" Pure.
std::string describe_unknown(std::string_view text, std::span<const std::string> names);

}  // namespace kolo
