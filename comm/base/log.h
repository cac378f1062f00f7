#pragma once

#include <string_view>

#include "comm/base/error.h"

namespace kolo::log {

/// Lines go to stderr as "kolo: rank 3 (node b): text", one write per line. `set_identity` names
/// this process; until then lines read "kolo: text". KOLO_LOG_LEVEL (error, warn, info, debug;
/// default warn) sets the threshold. Threads: any.
void set_identity(int rank, std::string_view node);

/// Logs an error of this process and marks it as logged; does nothing if it was logged before. Only
/// the code that decides on an error calls this; callers that catch the error do not report it
/// again.
void report(Error& error);

void error(std::string_view text);
void warn(std::string_view text);
/// Logs news that is no problem but matters to the person who runs the job; shown at level warn.
void notice(std::string_view text);
void info(std::string_view text);
void debug(std::string_view text);

}  // namespace kolo::log
