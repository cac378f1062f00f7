#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/job_identity.h"

namespace kolo::trainer {

/// An option with the values to try.
struct Dimension {
  std::string option;  ///< A long name: "lr".
  std::vector<std::string> values;
};

/// "lr=1e-3,3e-3". Commas within parentheses belong to a value. Errors: UsageError quoting `text`.
Dimension parse_dimension(std::string_view text);

/// A value for each dimension.
using Combination = std::vector<Setting>;

/// All combinations, the last dimension changing first. Errors: UsageError for an option that comes
/// twice.
std::vector<Combination> all_combinations(const std::vector<Dimension>& dimensions);

/// "lr=1e-3,batch=8", fit for a folder: other characters than letters, digits and . , = + - ( ) _
/// become '_'.
std::string folder_name(const Combination& combination);

}  // namespace kolo::trainer
