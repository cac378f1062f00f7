#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/kolo.h"

namespace kolo::bench {

/// The ranks of a benchmark exchange values through Kolo's own all-reduce, without a shared file
/// system or a server. All functions are collective unless stated otherwise.

/// Replaces each value by the maximum over all ranks.
void max_over_ranks(Runtime& runtime, std::span<double> values);

/// Returns the values of all ranks, indexed by rank. `call_name` must be new in every call.
std::vector<std::string> all_gather(Runtime& runtime, std::string_view call_name,
                                    const std::string& mine);

/// Returns the numeric address at which other ranks reach this rank over TCP: the loopback address
/// on a single node, otherwise the address that Kolo has found. Peers and limits thereby use Kolo's
/// network. Not collective. Errors: KoloError(kIo) if no address reaches the other nodes.
std::string network_address(const Runtime& runtime);

/// Aligns the ranks before a call with a barrier. With several nodes it first sleeps until 200
/// microseconds after `ended`, the end of the previous call. All systems thus rest equally long
/// between calls; without a rest, a rate-limited link would favour systems that pause.
void begin_together(Runtime& runtime, std::chrono::steady_clock::time_point ended);

}  // namespace kolo::bench
