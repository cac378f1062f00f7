#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kolo {

/// Returns the entry of `names` that `text` most likely misspells, if any: an entry that begins
/// with `text` or differs in at most two letters. Pure.
std::optional<std::string> nearest_name(std::string_view text, std::span<const std::string> names);

/// Describes an unknown name: "'rign' is not ring, direct or flat; did you mean ring?" Pure.
std::string describe_unknown(std::string_view text, std::span<const std::string> names);

}  // namespace kolo
