#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace kolo {

/// Decides which of a job's flags a bucket gets. Ranks that take and give back in the same order
/// get the same. Flags only grow, so whoever takes one learns what it was raised to before, and
/// goes on from there. First fit. Threads: one.
class FlagRanges {
 public:
  /// The values of a flag: numbers of iterations, or of a device's launches, which follow an order
  /// of their own. A flag that has served one use is never given to the other.
  enum class Use : std::uint8_t { kIterations, kLaunches };

  struct Range {
    std::uint32_t first = 0;
    std::uint64_t raised_to = 0;  ///< At most, by whoever had any of them.
  };

  explicit FlagRanges(std::uint32_t limit) : limit_(limit) {}

  std::uint32_t limit() const { return limit_; }

  /// Empty if there are not as many in a row.
  std::optional<Range> take(std::uint32_t count, Use use);

  /// `count` flags from `first` on came from `take`; they were raised to `raised_to` at most.
  void give_back(std::uint32_t first, std::uint32_t count, std::uint64_t raised_to);

 private:
  struct Flag {
    bool is_taken = false;
    std::optional<Use> use = {};  // that it has had
    std::uint64_t raised_to = 0;
  };

  const std::uint32_t limit_;
  std::vector<Flag> flags_;  // that were ever taken, from the first on
};

}  // namespace kolo
