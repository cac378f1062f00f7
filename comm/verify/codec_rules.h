#pragma once

#include <optional>
#include <string>

#include "comm/schedule/schedule.h"

namespace kolo {

/// Checks that only messages and steps of the codec access payloads, and only whole payloads, and
/// that only steps of the codec access pairs. Returns the error, if any, as `check_step` does.
std::optional<std::string> check_payloads(const Step& step, const Schedule& schedule);

/// Checks a step of the codec alone: its bucket, and its ranges, whose regions depend on the verb.
std::optional<std::string> check_codec(const Step& step, const Schedule& schedule);

}  // namespace kolo
