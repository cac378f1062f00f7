#pragma once

#include <string_view>

#include "comm/base/error.h"

namespace kolo::log {

/// Names this process in log lines, which become "kolo: rank 3 (node b): text"; until then lines
/// are "kolo: text". Each line is one write to stderr. KOLO_LOG_LEVEL (error, warn, info or debug;
/// default warn) is the threshold. Threads: any, for all functions here.
void set_identity(int rank, std::string_view node);

/// Logs an error of this process and marks it as logged. Does nothing if the error is already
/// marked as logged. Call it only where the failure is detected; code that catches the error must
/// not log it.
void report(Error& error);

void error(std::string_view text);
void warn(std::string_view text);
/// Logs a message at level warn that is not a problem but matters to the user.
void notice(std::string_view text);
void info(std::string_view text);
void debug(std::string_view text);

}  // namespace kolo::log
