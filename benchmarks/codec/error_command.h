#pragma once

#include <string>
#include <vector>

#include "benchmarks/codec/mean_error.h"

namespace CLI {
class App;
}

namespace kolo::bench {

/// `kolo-bench error`: the distance of the mean over 16-bit contributions from the exact one, for
/// Kolo's algorithms and for a ring, on simulated ranks. Prints a table, and writes it as JSON on
/// request.
class ErrorCommand {
 public:
  explicit ErrorCommand(CLI::App& app);

  bool chosen() const;
  /// Returns true if `direct` stayed within the bound of one rounding, 0.51 units, everywhere.
  /// Errors: KoloError(kIo).
  bool run() const;

 private:
  CLI::App& command_;
  std::vector<int> ranks_ = {2, 3, 6, 7, 12, 16, 32, 64};
  MeanErrorOptions options_;
  std::string json_;
};

}  // namespace kolo::bench
