#pragma once

#include <algorithm>
#include <limits>

#include "topology/link_costs.h"

namespace kolo {

/// Of the time that a rank with a message takes of a core that ranks share, what one takes that
/// waits: it polls and gives way. Source: 4 B on 3, 4 and 8 hosts of two cores (README, "waiting
/// takes a half").
inline constexpr double kWaitingTakes = 0.5;

/// How much longer messages that are under way at once take than one of ranks that have cores of
/// their own. Where `ranks` share cores, a message has its way only while both its ranks have one:
/// of all that are under way, as many as there are pairs of cores. Ranks that have less to do than
/// the busiest, which sends and receives `of_one_rank` messages, wait for it, and take
/// `kWaitingTakes` of what they would take if they had as much. Four ranks on two cores:
///
///   each sends to one and gets of another     4 messages, nobody waits            4
///   each of two sends to one                  2 messages, nobody waits            2
///   one sends to one                          1 message, as 2 if all had one      1.5
///   three send to one                         3 messages, as 6 if all had three   4.5
inline double ways_on_shared_cores(double messages, double of_one_rank, double ranks,
                                   double pairs_of_cores) {
  const double if_all_had_as_much = std::max(messages, of_one_rank * ranks / 2);
  const double turns = messages + kWaitingTakes * (if_all_had_as_much - messages);
  return std::max(1.0, turns / pairs_of_cores);
}

/// What a rank sends and receives together on its share of a core, in bytes per microsecond;
/// infinite where links, not processors, are the limit. A core sends as much as it receives
/// meanwhile.
inline double rank_bytes_per_us(const LinkCosts& costs) {
  const bool is_limit = costs.rank_cores < 1 && costs.network.rank_bytes_per_us > 0;
  return is_limit ? 2 * costs.network.rank_bytes_per_us * costs.rank_cores
                  : std::numeric_limits<double>::infinity();
}

/// Whether bytes wait for links. Of one that is shaped that is known; any other is as fast as ranks
/// are, and where they share cores it is they who matter.
inline bool links_are_limit(const LinkCosts& costs) {
  return costs.network.burst_bytes > 0 ||
         rank_bytes_per_us(costs) == std::numeric_limits<double>::infinity();
}

}  // namespace kolo
