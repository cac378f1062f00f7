#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/schedule.h"
#include "comm/verify/contents.h"

namespace kolo {

/// Codec steps as the verifier plays them: without data, one after the other in an order that their
/// schedules allow. Contributions must be merged in the order of ranks, and sums be narrowed round
/// by round, each time by the counts of all that narrow with them. Threads: one.
class CodecPlay {
 public:
  /// `schedules[r]` is rank r's; they outlive this.
  explicit CodecPlay(std::span<const Schedule> schedules);

  /// Puts what a codec step of `rank` writes into `result`, where `sources` is what it reads;
  /// returns what is wrong with that, as the end of a sentence.
  std::optional<std::string> play(std::size_t rank, const Step& step,
                                  const std::vector<SymbolicRuns>& sources, SymbolicRuns& result);

 private:
  std::vector<std::uint16_t> owners_with(std::size_t rank) const;

  std::span<const Schedule> schedules_;
  std::vector<std::uint32_t> narrowed_;  // rounds that each rank has narrowed
};

}  // namespace kolo
