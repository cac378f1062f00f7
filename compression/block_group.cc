#include "compression/block_group.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "comm/base/check.h"
#include "comm/kernels/reduce_kernels.h"
#include "compression/finite.h"
#include "compression/kernels/nth_key.h"
#include "compression/number_payload.h"
#include "compression/value_codec.h"

namespace kolo {
namespace {

int exponent_of(DType wire, std::span<const float> values) {
  if (wire != DType::kFloat16) return 0;
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return fitting_exponent(wire, largest);
}

}  // namespace

BlockGroup::BlockGroup(int rank, const ProcessGrid& grid, SparseOptions options)
    : CompressedGroup(rank, grid, std::move(options)),
      plan_(*layout_.blocks),
      share_plan_(plan_.share()),
      result_plan_(plan_.result()),
      scores_(plan_.blocks()) {
  const std::size_t blocks = plan_.most_blocks();
  keys_.reserve(scores_.size() + radix::kKeySlack);
  numbers_.reserve(blocks);
  chosen_.reserve(blocks);
  sent_.reserve(plan_.most_values());
  for (auto* values : {&decoded_, &sums_, &rounding_}) values->reserve(result_plan_.most_values);
  payload_.reserve(share_plan_.most_blocks);
  counts_.reserve(share_plan_.most_blocks);
  sent_runs_.reserve(blocks);
  kept_runs_.reserve(result_plan_.most_blocks);
}

// --- The choice ---------------------------------------------------------------------------------

void BlockGroup::encode(const CodecElements& contribution, Payloads) {
  begin(Step::kSparse);
  locate(contribution);
  std::size_t first = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::size_t blocks = plan_.blocks_of(i);
    feedback_.fold_blocks(i, part_at(i), 1.0f, plan_.block,
                          std::span(scores_).subspan(first, blocks));
    first += blocks;
  }
}

void BlockGroup::count(std::uint32_t, Payloads counts) {
  auto next = scores_.begin();
  for (const std::span<std::byte> payload : counts) {
    const std::span<float> part = numbers_in<float>(payload);
    std::copy_n(next, part.size(), part.begin());
    next += static_cast<std::ptrdiff_t>(part.size());
    use_all(payload);
    stats_.payload_bytes += payload.size();
  }
}

void BlockGroup::tally(Payloads sources, std::span<std::byte> sum) {
  const std::span<float> total = numbers_in<float>(sum);
  std::ranges::fill(total, 0.0f);
  for (const std::span<std::byte> source : sources) {
    const std::span<const float> part = numbers_in<float>(source);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += part[i];
  }
  use_all(sum);
  stats_.payload_bytes += sum.size();
}

void BlockGroup::narrow(std::uint32_t, Payloads counts) {
  auto next = scores_.begin();
  for (const std::span<std::byte> payload : counts) {
    next = std::ranges::copy(numbers_in<float>(payload), next).out;
  }
  choose();
}

void BlockGroup::choose() {
  const std::optional<double> keep = density();
  ensure(keep.has_value(), "a sparse schedule in a dense step");
  chosen_.clear();
  values_ = 0;
  scores_are_finite_ = std::ranges::none_of(scores_, [](float score) { return std::isnan(score); });
  if (!scores_are_finite_) return;
  std::size_t first = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::size_t blocks = plan_.blocks_of(i);
    choose_blocks(std::span(scores_).subspan(first, blocks), pairs_to_keep(*keep, blocks), keys_,
                  numbers_);
    first += blocks;
    for (const std::uint32_t number : numbers_) {
      const std::size_t element = number * plan_.block;
      const std::size_t count = std::min(plan_.block, plan_.tensor_counts[i] - element);
      chosen_.push_back({.part = i, .element = element, .count = count, .position = values_});
      values_ += count;
    }
  }
}

// --- This rank's contribution -------------------------------------------------------------------

void BlockGroup::finish(Payloads shares) {
  stats_.k = stats_.sent_pairs = values_;
  if (!scores_are_finite_) {
    for (const std::span<std::byte> share : shares) {
      stats_.payload_bytes += encode_blocks_not_finite(share_plan_, share);
    }
    return;
  }
  round_values();
  for (std::size_t i = 0; i < shares.size(); ++i) {
    payload_.clear();
    for_blocks_of(static_cast<int>(i), [&](const Chosen& block, const Extent& values) {
      payload_.push_back({.values = std::span(sent_).subspan(values.offset, values.count),
                          .exponent = block.exponent});
    });
    stats_.payload_bytes += encode_blocks(share_plan_, payload_, shares[i]);
  }
}

void BlockGroup::round_values() {
  sent_.resize(values_);
  for (Chosen& block : chosen_) {
    const std::span<const float> sums =
        feedback_.sums(block.part).subspan(block.element, block.count);
    block.exponent = exponent_of(plan_.wire, sums);
    round_to_wire(plan_.wire, block.exponent, sums,
                  std::span(sent_).subspan(block.position, block.count));
  }
}

template <typename Visit>
void BlockGroup::for_blocks_of(int owner, Visit visit) const {
  const Extent own = plan_.dealt(owner, values_);
  if (own.count == 0) return;
  auto block = std::prev(std::ranges::upper_bound(chosen_, own.offset, {}, &Chosen::position));
  for (; block != chosen_.end() && block->position < own.end(); ++block) {
    const std::size_t begin = std::max(block->position, own.offset);
    visit(*block, Extent{.offset = begin, .count = std::min(block->end(), own.end()) - begin});
  }
}

// --- As an owner --------------------------------------------------------------------------------

void BlockGroup::merge(Payloads sources, Payloads sum) {
  const std::span<std::byte> result = sum.front();
  bool is_finite = true;
  for (const std::span<std::byte> source : sources) {
    is_finite &= blocks_are_finite(share_plan_, source);
  }
  if (is_finite) {
    counts_.clear();
    for_blocks_of(layout_.position,
                  [&](const Chosen&, const Extent& values) { counts_.push_back(values.count); });
    sums_.resize(own_extent().count);
    decoded_.resize(sums_.size());
    for (std::size_t i = 0; i < sources.size(); ++i) {
      decode_blocks(share_plan_, sources[i], counts_, i == 0 ? sums_ : decoded_);
      if (i == 0) continue;
      for (std::size_t j = 0; j < sums_.size(); ++j) sums_[j] += decoded_[j];
    }
    is_finite = are_finite(sums_);
  }
  if (!is_finite) {
    stats_.payload_bytes += encode_blocks_not_finite(result_plan_, result);
    return;
  }
  round_sums();
  stats_.payload_bytes += encode_blocks(result_plan_, payload_, result);
}

void BlockGroup::round_sums() {
  rounding_.assign(sums_.begin(), sums_.end());
  payload_.clear();
  const std::size_t first = own_extent().offset;
  for_blocks_of(layout_.position, [&](const Chosen&, const Extent& values) {
    const std::span<float> sums = std::span(sums_).subspan(values.offset - first, values.count);
    const int exponent = exponent_of(plan_.result_wire, sums);
    round_to_wire(plan_.result_wire, exponent, sums, sums);
    payload_.push_back({.values = sums, .exponent = exponent});
  });
  for (std::size_t j = 0; j < sums_.size(); ++j) rounding_[j] -= sums_[j];
}

// --- The result ---------------------------------------------------------------------------------

void BlockGroup::decode(Payloads results, const CodecElements& elements, double scale) {
  clear(elements);
  if (!std::ranges::all_of(results, [&](std::span<const std::byte> result) {
        return blocks_are_finite(result_plan_, result);
      })) {
    return mark_not_finite();
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const int owner = static_cast<int>(i);
    counts_.clear();
    for_blocks_of(owner,
                  [&](const Chosen&, const Extent& values) { counts_.push_back(values.count); });
    const Extent own = plan_.dealt(owner, values_);
    decoded_.resize(own.count);
    decode_blocks(result_plan_, results[i], counts_, decoded_);
    rescale(DType::kFloat32, decoded_.data(), decoded_.size(), scale);
    for_blocks_of(owner, [&](const Chosen& block, const Extent& values) {
      float* const place = places_[block.part] + block.element + (values.offset - block.position);
      const float* const value = decoded_.data() + (values.offset - own.offset);
      std::copy_n(value, values.count, place);
    });
    stats_.kept_pairs += own.count;
  }
}

void BlockGroup::commit_sparse() {
  const Extent own = own_extent();
  std::size_t first = 0;  // of the part's blocks
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) {
    sent_runs_.clear();
    kept_runs_.clear();
    for (; first < chosen_.size() && chosen_[first].part == i; ++first) {
      const Chosen& block = chosen_[first];
      sent_runs_.push_back({.first = block.element,
                            .values = std::span(sent_).subspan(block.position, block.count)});
      const std::size_t begin = std::max(block.position, own.offset);
      const std::size_t end = std::min(block.end(), own.end());
      if (begin >= end) continue;
      kept_runs_.push_back(
          {.first = block.element + (begin - block.position),
           .values = std::span(rounding_).subspan(begin - own.offset, end - begin)});
    }
    feedback_.commit(i, sent_runs_, kept_runs_);
  }
}

}  // namespace kolo
