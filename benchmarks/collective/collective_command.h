#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "benchmarks/collective/collective_bench.h"
#include "runtime/api/options.h"

namespace kolo::bench {

/// `kolo-bench all-reduce`, `kolo-bench all-gather` and so on: time and bandwidth of a collective
/// by size, as a table and as JSON.
class CollectiveCommand {
 public:
  /// Adds the command to `app`; this object outlives the parsing.
  CollectiveCommand(CLI::App& app, Verb verb);

  /// True if the command line asked for this command.
  bool chosen() const { return command_.parsed(); }
  /// Returns true if all results were right. Collective.
  bool run();

 private:
  void resolve();
  /// In place of gradients, which do not take the case.
  void measure_calls();

  void add_gradient_memory();
  void add_call_memory();
  void add_other_place();
  void add_sparse_rows_options();

  const Verb verb_;
  CLI::App& command_;
  Options runtime_;
  std::vector<std::string> sizes_ = {"4", "1K", "64K", "1M", "16M", "64M"};
  std::vector<std::string> homes_ = {"arena"};
  std::vector<std::string> compare_;
  std::string dtype_ = "float32", op_ = "sum", json_, label_;
  bool other_place_ = false;
  CollectiveOptions options_;
};

}  // namespace kolo::bench
