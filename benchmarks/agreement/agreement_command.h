#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/api/options.h"

namespace kolo::bench {

/// `kolo-bench agreement`: the time from the last rank being ready for a bucket until it starts,
/// beside a round trip of the network, and the time of barriers, alone and while a large bucket is
/// in flight.
class AgreementCommand {
 public:
  /// Adds the command to `app`; this object outlives the parsing.
  explicit AgreementCommand(CLI::App& app);

  bool chosen() const { return command_.parsed(); }

  /// Returns true, because there are no sums to check. Rows say whether the bucket was still in
  /// flight at the last agreement beside it. Collective.
  bool run();

 private:
  CLI::App& command_;
  Options runtime_;
  std::vector<std::string> sizes_ = {"0", "64M"};
  std::size_t agreements_ = 10, rounds_ = 5;
  std::string json_;
};

}  // namespace kolo::bench
