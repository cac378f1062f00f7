#pragma once

#include <optional>
#include <string>

#include "comm/schedule/schedule.h"

namespace kolo {

/// The error in a step's payloads, as the end of a sentence: only messages and codec steps
/// touch them, and whole ones only. Threads: pure; any.
std::optional<std::string> check_payloads(const Step& step, const Schedule& schedule);

/// The error in a codec step by itself: its bucket, and its ranges, of which the verb says
/// what they hold.
std::optional<std::string> check_codec(const Step& step, const Schedule& schedule);

}  // namespace kolo
