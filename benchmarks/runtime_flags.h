#pragma once

#include <CLI/CLI.hpp>

#include "runtime/options.h"

namespace kolo::bench {

/// Every runtime option under its flag; `--wire` is the short name of `--wire-dtype`. `options`
/// outlives the parsing.
void add_runtime_flags(CLI::App& command, Options& options);

}  // namespace kolo::bench
