#pragma once

#include "comm/schedule/schedule_builder.h"
#include "compression/exchange_routes.h"
#include "compression/sparse_all_reduce.h"

namespace kolo {

/// Appends the exchange of one shard among the ranks of `layout`, one of which is the builder's.
/// `elements`, the shard in its bucket or its home, holds the contribution before and the result
/// after. All these ranks call it with layouts that differ only in their own place.
///
///     all-gather   encode · contributions to all · merge as every owner · decode
///     else         encode · shares to the owners · merge · results to all · decode
///
/// With QuotaRule::kGlobalExact the owners determine, between merge and result, how many pairs each
/// keeps: in four rounds of counts, summed by one owner for each part and sent to all of them.
///
/// Threads: pure; any.
void append_sparse_exchange(ScheduleBuilder& builder, const SparseLayout& layout,
                            ExchangeRoute route, const Range& elements, bool finishes);

/// Rounds that determine how many pairs each owner keeps: the digits of a threshold, then the
/// number exactly at it. Before: 0 <= round < kNarrowRounds; `owners` have elements.
inline constexpr std::uint32_t kNarrowRounds = 4;
std::size_t counts_of_round(std::uint32_t round, std::size_t owners);
/// Number of owners that have elements: the first ones.
std::size_t owners_with_elements(const BlockOwnership& ownership);

}  // namespace kolo
