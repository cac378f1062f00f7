#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "benchmarks/all_reduce/all_reduce_bench.h"
#include "runtime/api/options.h"

namespace kolo::bench {

/// `kolo-bench all-reduce`: time and bandwidth by size, as a table and as JSON.
class AllReduceCommand {
 public:
  /// Adds the command to `app`; this object outlives the parsing.
  explicit AllReduceCommand(CLI::App& app);

  /// True if the command line asked for this command.
  bool chosen() const { return command_.parsed(); }
  /// Returns true if all sums were right. Collective.
  bool run();

 private:
  void resolve();

  CLI::App& command_;
  Options runtime_;
  std::vector<std::string> sizes_ = {"4", "1K", "64K", "1M", "16M", "64M"};
  std::vector<std::string> homes_ = {"arena"};
  std::vector<std::string> compare_;
  std::string dtype_ = "float32", op_ = "sum", json_, label_;
  AllReduceOptions options_;
};

}  // namespace kolo::bench
