#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/api/group.h"

namespace kolo::test {

/// Sums rows of one table and blocks until the result is in `sums`, whose memory is reused.
inline void sum_rows(Group& group, std::string_view name, const RowTable& table,
                     Span<const std::int64_t> indices, const void* rows, RowSums& sums,
                     const RowOptions& options = {}) {
  std::vector<RowSums> memory;
  memory.push_back(std::move(sums));
  const kolo::TableRows given{.table = table, .indices = indices, .rows = rows};
  sums = std::move(group.sparse_all_reduce(name, given, options, std::move(memory)).sums().front());
}

}  // namespace kolo::test
