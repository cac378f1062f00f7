#include "runtime/rows/row_call.h"

#include <cstddef>
#include <string_view>

#include <fmt/format.h>

namespace kolo {
namespace {

std::string_view name_of(RowForm form) {
  constexpr std::string_view kNames[] = {"auto", "rows", "table"};
  return kNames[static_cast<std::size_t>(form)];
}

}  // namespace

std::string to_string(const RowCall& call) {
  const auto& [table, options] = call;
  return fmt::format("sparse_all_reduce {} [{}, {}] {}, result {}, exchange {}",
                     to_string(table.dtype), table.height, table.width,
                     describe(options.op, options.scales), name_of(options.result),
                     name_of(options.exchange));
}

}  // namespace kolo
