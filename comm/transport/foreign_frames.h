#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/base/log.h"

namespace kolo {

/// Control frames that no rank of this job can have sent. Anybody who reaches a port of the network
/// transport can write one, so they are dropped and end nothing. The first is told, then the 10th,
/// the 100th and so on.
///
/// Threads: one.
class ForeignFrames {
 public:
  /// Counts a frame that is dropped. `source`: the rank that it says it is from.
  void drop(int source, std::string_view why) {
    if (++count_ < next_told_) return;
    next_told_ *= 10;
    log::warn("dropped a control frame that says it is from rank " + std::to_string(source) + ": " +
              std::string(why) + "; number " + std::to_string(count_) +
              " of its kind. Does another program write to the ports of this rank?");
  }

  std::uint64_t count() const { return count_; }

 private:
  std::uint64_t count_ = 0;
  std::uint64_t next_told_ = 1;
};

}  // namespace kolo
