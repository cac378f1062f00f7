#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "topology/link_costs.h"
#include "topology/link_fit.h"

namespace kolo {

/// What short looks at the link between nodes `node` and `node` + 1 show. A rank that is kept from
/// its core makes a link seem slower than it is, and nothing makes it seem faster, beside what a
/// shaped one lets pass at once and what has gathered while a rank was away; so a rate lies between
/// two.
struct LinkLook {
  int node = 0;
  double trip_us = 0;     ///< The shortest of a small message, one way.
  double least_rate = 0;  ///< Bytes per microsecond each way: of all that no burst explains,
  double most_rate = 0;   ///< and of the fastest part.

  friend bool operator==(const LinkLook&, const LinkLook&) = default;
};

/// What the samples that `node` has of the next one show, if there are any, where `burst_bytes` may
/// have passed at once.
std::optional<LinkLook> look_at(const NetworkSamples& samples, int node, double burst_bytes);

/// Both looks at one link together.
LinkLook merge(const LinkLook& a, const LinkLook& b);

/// A link between nodes that does not cost what it did.
struct LinkChange {
  enum class What : std::uint8_t { kTrip, kRate };
  What what = What::kTrip;
  int node = 0;       ///< kRate: of nodes `node` and `node` + 1.
  double before = 0;  ///< kTrip: microseconds of a small message, one way; kRate: bytes per
  double now = 0;     ///< microsecond, each way.

  friend bool operator==(const LinkChange&, const LinkChange&) = default;
};

/// By more than this a cost has changed; by less it differs when the same links are measured again.
inline constexpr double kTripChange = 10, kRateChange = 3;

/// The first of `links` whose rate is another than `before`, whatever a rank may have been kept
/// from; else the longest trip of all, if it has become shorter. Trips that seem longer are no
/// change: ranks that wait for their cores make them, too.
///
/// Threads: pure; any.
std::optional<LinkChange> find_change(const LinkCosts& before, std::span<const LinkLook> links);

}  // namespace kolo
