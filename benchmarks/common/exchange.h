#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Exchanges between the ranks of a benchmark through Kolo's own all-reduce, without a shared file
/// system or a server. All are collective unless stated otherwise.

/// Replaces each value by the largest of all ranks.
void max_over_ranks(Runtime& runtime, std::span<double> values);

/// The values of all ranks, by rank. `call_name` must be new in every call.
std::vector<std::string> all_gather(Runtime& runtime, std::string_view call_name,
                                    const std::string& mine);

/// The numeric address at which other ranks reach this one by TCP: the loopback if all ranks are on
/// one node, otherwise the address that Kolo has found, so that peers and limits use the same
/// network. Not collective. Errors: KoloError(kIo) if no address reaches other nodes.
std::string network_address(const Runtime& runtime);

/// A barrier before a call, so that ranks begin it together. Between nodes it waits for some time
/// after `ended`, the end of the previous call: a rate-limited link passes more after a rest, and
/// systems differ in what they do between their calls.
void begin_together(Runtime& runtime, std::chrono::steady_clock::time_point ended);

}  // namespace kolo::bench
