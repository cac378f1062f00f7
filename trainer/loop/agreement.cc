#include "trainer/loop/agreement.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

namespace kolo::trainer {

namespace {

/// The first 64 bytes of each rank's text.
std::vector<std::string> gather_text(Runtime& runtime, std::string text) {
  constexpr std::size_t kBytes = 64;
  text.resize(kBytes);
  std::vector<std::string> texts(static_cast<std::size_t>(runtime.world_size()));
  for (std::size_t at = 0; at < kBytes; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof word);
    const std::vector<std::uint64_t> words = gather(runtime, "settings", word);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      texts[rank].append(reinterpret_cast<const char*>(&words[rank]), sizeof word);
    }
  }
  for (std::string& each : texts) each.resize(std::strlen(each.c_str()));
  return texts;
}

}  // namespace

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

void require_equal(Runtime& runtime, const std::vector<Setting>& settings) {
  const auto differing_rank = [&](std::string_view value) -> std::optional<std::size_t> {
    const std::vector<std::uint64_t> hashes =
        gather(runtime, "settings", XXH3_64bits(value.data(), value.size()));
    const auto other =
        std::ranges::find_if(hashes, [&](std::uint64_t hash) { return hash != hashes.front(); });
    if (other == hashes.end()) return std::nullopt;
    return static_cast<std::size_t>(other - hashes.begin());
  };
  std::string all;
  for (const Setting& setting : settings) all += setting.value + '\n';
  if (!differing_rank(all)) return;
  for (const Setting& setting : settings) {
    const auto other = differing_rank(setting.value);
    if (!other) continue;
    const std::vector<std::string> texts = gather_text(runtime, setting.value);
    throw KoloError({.code = ErrorCode::kMismatch,
                     .rank = runtime.rank(),
                     .what = fmt::format("the options of rank {} differ from those of rank 0: {} "
                                         "is '{}' there, and '{}' on rank 0",
                                         *other, setting.option, texts[*other], texts.front())});
  }
}

}  // namespace kolo::trainer
