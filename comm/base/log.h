#pragma once

#include <string_view>

#include "comm/base/error.h"

namespace kolo::log {

/// Lines go to stderr as "kolo: rank 3 (node b): text", one write per line. `set_identity` names
/// this process; until then lines read "kolo: text". KOLO_LOG_LEVEL (error, warn, info, debug;
/// default warn) filters. Threads: any.
void set_identity(int rank, std::string_view node);

/// Logs an error of this process, unless it is logged already, and marks it as logged. The code
/// that decides on an error reports it; the code that catches it later repeats nothing.
void report(Error& error);

void error(std::string_view text);
void warn(std::string_view text);
void info(std::string_view text);
void debug(std::string_view text);

}  // namespace kolo::log
