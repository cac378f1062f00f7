#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/job_identity.h"

namespace kolo::trainer {

/// The values of all ranks, by rank. Collective; `name` identifies the exchange.
std::vector<std::uint64_t> gather(Runtime& runtime, std::string_view name, std::uint64_t value);

/// A sentence that says which of `values`, by rank, differ from rank 0. Empty if all are equal.
std::string describe_difference(std::string_view what, const std::vector<std::uint64_t>& values);

/// Checks that all ranks give the same value. Collective.
/// Errors: KoloError(kMismatch) on every rank, naming `what` and the ranks that differ from rank 0.
void require_equal(Runtime& runtime, std::string_view what, std::uint64_t value);

/// Checks that all ranks have the same settings, which have the same names everywhere. Collective.
/// Errors: KoloError(kMismatch) on every rank, with the name of the first one that differs and, as
/// far as 64 bytes tell, its values.
void require_equal(Runtime& runtime, const std::vector<Setting>& settings);

}  // namespace kolo::trainer
