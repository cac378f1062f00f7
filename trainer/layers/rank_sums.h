#pragma once

#include <functional>
#include <span>
#include <string_view>

namespace kolo::trainer {

/// Replaces `values` by their sums over all ranks, for layers whose statistics are those of the
/// samples of all ranks. Collective: every rank calls it equally often, in the same order; `name`
/// says what is summed and is one layer's own.
using RankSums = std::function<void(std::string_view name, std::span<double> values)>;

}  // namespace kolo::trainer
