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
/// Threads: pure; any.
void append_sparse_exchange(ScheduleBuilder& builder, const SparseLayout& layout,
                            ExchangeRoute route, const Range& elements, bool finishes);

}  // namespace kolo
