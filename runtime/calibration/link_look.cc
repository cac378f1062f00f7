#include "runtime/calibration/link_look.h"

#include <algorithm>
#include <cstddef>

namespace kolo {
namespace {

/// Of small messages where links are slow, so that what is under way at the end takes little time.
NetworkEffort effort_for(const LinkCosts& remembered) {
  constexpr double kMessageUs = 150;
  constexpr std::size_t kLeast = std::size_t{4} << 10, kMost = NetworkEffort{}.message_bytes;
  const double bytes = kMessageUs * remembered.network.bytes_per_us;
  return {
      .rounds = 1,
      .message_bytes = bytes < kMost ? std::max(kLeast, static_cast<std::size_t>(bytes)) : kMost};
}

}  // namespace

std::optional<LinkLook> look_at_link(MessageTransport& transport, const ProcessGrid& grid,
                                     const ProbeLimits& limits, const Clock& clock,
                                     const LinkCosts& remembered) {
  const NetworkSamples samples =
      probe_network(transport, grid, limits, {.clock = clock, .end = clock.now() + kLookWithin},
                    effort_for(remembered));
  return look_at(samples, grid.node(transport.rank()), remembered.network.burst_bytes);
}

}  // namespace kolo
