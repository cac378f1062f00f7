#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kolo {

/// The entry of `names` that `text` most likely misspells: it differs in at most two letters or
/// begins with `text`. Empty if there is none. Pure.
std::optional<std::string> nearest_name(std::string_view text, std::span<const std::string> names);

/// "'rign' is not ring, direct or tree; did you mean ring?" Pure.
std::string describe_unknown(std::string_view text, std::span<const std::string> names);

}  // namespace kolo
