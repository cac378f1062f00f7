#include "trainer/loop/agreement.h"

#include <algorithm>
#include <cstddef>
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
  std::string all(kBytes * static_cast<std::size_t>(runtime.world_size()), '\0');
  const ConstBuffer mine{text.data(), text.size(), DType::kUInt8};
  const BufferView everybodys{all.data(), all.size(), DType::kUInt8};
  runtime.all_gather("texts of settings", {mine, everybodys}).wait();
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size(); at += kBytes) {
    texts.emplace_back(all.substr(at, kBytes).c_str());
  }
  return texts;
}

}  // namespace

std::vector<std::uint64_t> gather(Runtime& runtime, std::string_view name, std::uint64_t value) {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(runtime.world_size()));
  const ConstBuffer mine{&value, 1, DType::kInt64};
  runtime.all_gather(name, {mine, {values.data(), values.size(), DType::kInt64}}).wait();
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
