#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "benchmarks/overlap/overlap_bench.h"
#include "runtime/api/options.h"

namespace kolo::bench {

/// `kolo-bench overlap`: the share of communication that a backward pass hides, by fusion size.
class OverlapCommand {
 public:
  /// Adds the command to `app`; this object outlives the parsing.
  explicit OverlapCommand(CLI::App& app);

  /// Returns true if all sums were right. Collective.
  bool run();

 private:
  CLI::App& command_;
  Options runtime_;
  std::size_t layers_ = 6, width_ = 384;
  std::vector<std::string> fusion_sizes_ = {"0", "1M", "4M", "16M"};
  std::vector<std::string> compare_;
  std::string home_ = "arena", json_, label_;
  OverlapOptions options_;
};

}  // namespace kolo::bench
