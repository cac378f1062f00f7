#include "runtime/calls/rows/row_call.h"

#include <cstddef>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

namespace kolo {
namespace {

std::string_view name_of(RowForm form) {
  constexpr std::string_view kNames[] = {"auto", "rows", "table"};
  return kNames[static_cast<std::size_t>(form)];
}

/// More tables than these are told apart by a hash.
constexpr std::size_t kMostInText = 16;

/// "float32 [10, 4] + [20, 8] on device"; all have one dtype and are in memory of one kind.
std::string describe(const std::vector<RowTable>& tables) {
  const std::string_view dtype = tables.empty() ? "" : to_string(tables.front().dtype);
  std::vector<std::string> shapes;
  for (const RowTable& table : tables) {
    shapes.push_back(fmt::format("[{}, {}]", table.height, table.width));
  }
  const bool is_on_device = !tables.empty() && tables.front().memory == MemoryKind::kDevice;
  const std::string_view place = is_on_device ? " on device" : "";
  std::string text = fmt::format("{}", fmt::join(shapes, " + "));
  if (tables.size() <= kMostInText) return fmt::format("{} {}{}", dtype, text, place);
  return fmt::format("{} in {} tables (hash {:016x}){}", dtype, tables.size(),
                     XXH3_64bits(text.data(), text.size()), place);
}

}  // namespace

std::string to_string(const RowCall& call) {
  const RowOptions& options = call.options;
  return fmt::format("sparse_all_reduce {} {}, result {}, exchange {}", describe(call.tables),
                     describe(options.op, options.scales), name_of(options.result),
                     name_of(options.exchange));
}

}  // namespace kolo
