#pragma once

#include <string_view>

#include "comm/base/error.h"

namespace kolo::log {

/// Lines go to stderr as "kolo: rank 3 (node b): text", one write per line. `set_identity` names
/// this process; until then lines read "kolo: text". KOLO_LOG_LEVEL (error, warn, info, debug;
/// default warn) sets the threshold. Threads: any.
void set_identity(int rank, std::string_view node);

/// Logs an error of this process unless it has been logged, and marks it as logged. The code that
/// decides on an error reports it; code that catches it later does not repeat it.
void report(Error& error);

void error(std::string_view text);
void warn(std::string_view text);
/// Nothing is wrong, but whoever runs the job should see it: shown where warnings are.
void notice(std::string_view text);
void info(std::string_view text);
void debug(std::string_view text);

}  // namespace kolo::log
