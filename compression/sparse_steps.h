#pragma once

#include "comm/schedule/schedule_builder.h"
#include "compression/exchange_routes.h"
#include "compression/sparse_all_reduce.h"

namespace kolo {

/// Appends the exchange of one shard among the ranks of `layout`, of which the builder's is one:
/// `elements`, the shard in its bucket or its home, hold its contribution before and the result
/// after. All these ranks call it with equal layouts but for their own place.
///
///     all-gather   encode · contributions to all · merge as every owner · decode
///     else         encode · shares to the owners · merge · results to all · decode
///
/// With QuotaRule::kGlobalExact the owners find, between merge and result, how much each keeps: in
/// four rounds of counts, summed by one owner for each part and sent to all of them.
///
/// Where blocks are chosen, all ranks find before the shares which ones these are, in one round of
/// scores that is summed alike:
///
///     encode, kept · scores · finish: shares to the owners · merge · results to all · decode
///
/// Threads: pure; any.
void append_sparse_exchange(ScheduleBuilder& builder, const SparseLayout& layout,
                            ExchangeRoute route, const Range& elements, bool finishes);

/// Rounds of finding how much each owner keeps: the digits of a threshold, then how much is exactly
/// at it. Before: 0 <= round < kNarrowRounds; `owners` have elements.
inline constexpr std::uint32_t kNarrowRounds = 4;
std::size_t counts_of_round(std::uint32_t round, std::size_t owners);
/// Owners that have elements: the first ones.
std::size_t owners_with_elements(const BlockOwnership& ownership);

}  // namespace kolo
