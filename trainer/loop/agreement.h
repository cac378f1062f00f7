#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/kolo.h"

namespace kolo::trainer {

/// What every rank gave, by rank. Collective; `name` identifies the exchange.
std::vector<std::uint64_t> gather(Runtime& runtime, std::string_view name, std::uint64_t value);

/// The sentence about `values` by rank that are not all equal: which ranks differ from rank 0.
/// Empty when they are equal.
std::string describe_difference(std::string_view what, const std::vector<std::uint64_t>& values);

/// Checks that all ranks give the same value. Collective.
/// Errors: KoloError(kMismatch) on every rank, naming `what` and the ranks that differ from rank 0.
void require_equal(Runtime& runtime, std::string_view what, std::uint64_t value);

}  // namespace kolo::trainer
