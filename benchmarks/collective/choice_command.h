#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "benchmarks/collective/choice_bench.h"
#include "runtime/api/options.h"

namespace kolo::bench {

/// `kolo-bench choice`: the time of "auto" relative to the best algorithm forced by name.
class ChoiceCommand {
 public:
  /// Adds the command to `app`; this object outlives the parsing.
  explicit ChoiceCommand(CLI::App& app);

  bool chosen() const { return command_.parsed(); }
  /// Returns true if all results were right. Collective.
  bool run();

 private:
  CLI::App& command_;
  Options runtime_;
  std::vector<std::string> sizes_ = {"4",    "1K", "4K", "16K", "64K",
                                     "256K", "1M", "4M", "16M", "64M"};
  std::vector<std::string> algorithms_;
  std::string collective_{to_string(Verb::kAllReduce)}, home_ = "arena", json_;
  ChoiceOptions options_;
};

}  // namespace kolo::bench
