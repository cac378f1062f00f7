#include "trainer/loop/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kolo::trainer {

std::vector<std::uint64_t> gather(Runtime& runtime, std::string_view name, std::uint64_t value) {
  // One slot per rank, zero in all but its own: the sum is the list. Values are split into 32-bit
  // halves to avoid arithmetic on signed 64-bit numbers.
  const auto ranks = static_cast<std::size_t>(runtime.world_size());
  const auto mine = 2 * static_cast<std::size_t>(runtime.rank());
  std::vector<std::int64_t> halves(2 * ranks);
  halves[mine] = static_cast<std::int64_t>(value >> 32);
  halves[mine + 1] = static_cast<std::int64_t>(value & 0xFFFFFFFFu);
  runtime.all_reduce(name, {halves.data(), halves.size(), DType::kInt64});
  std::vector<std::uint64_t> values(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    values[rank] = static_cast<std::uint64_t>(halves[2 * rank]) << 32 |
                   static_cast<std::uint64_t>(halves[2 * rank + 1]);
  }
  return values;
}

std::string describe_difference(std::string_view what, const std::vector<std::uint64_t>& values) {
  std::vector<std::size_t> others;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] != values.front()) others.push_back(rank);
  }
  if (others.empty()) return {};
  return fmt::format("{} of rank{} {} differ from those of rank 0 ({:016x}, not {:016x})", what,
                     others.size() > 1 ? "s" : "", fmt::join(others, ", "), values[others.front()],
                     values.front());
}

void require_equal(Runtime& runtime, std::string_view what, std::uint64_t value) {
  std::string difference = describe_difference(what, gather(runtime, what, value));
  if (difference.empty()) return;
  throw KoloError(Error{.code = ErrorCode::kMismatch,
                        .rank = runtime.rank(),
                        .verb = {},
                        .bucket = {},
                        .what = std::move(difference)});
}

}  // namespace kolo::trainer
