#include "compression/kernels/top_k.h"

#include <span>
#include <vector>

#include "comm/base/check.h"
#include "compression/kernels/radix_select.h"

namespace kolo {
namespace {

/// The k-th largest key, and how many of the elements with this key are among the k.
radix::Selection find_threshold(std::span<const float> sums, std::size_t k) {
  radix::Selection selection{.need = static_cast<std::uint32_t>(k)};
  std::vector<std::uint32_t> histogram;
  for (int i = 0; i < radix::kDigitCount; ++i) {
    const radix::Digit digit = radix::digit(i);
    histogram.assign(digit.bins(), 0);
    for (const float sum : sums) {
      const std::uint32_t key = radix::key_of(sum);
      if (digit.prefix(key) == selection.prefix) ++histogram[digit.of(key)];
    }
    const radix::Bin bin = radix::find_bin(histogram.data(), digit.bins(), selection.need);
    selection = radix::refined(selection, digit, bin);
  }
  return selection;
}

}  // namespace

void check_top_k(const TopK& task) {
  check(task.count < kMostTopKElements, "top-k takes fewer than 2^31 elements");
  check(task.k <= task.count, "top-k cannot select more elements than there are");
}

void top_k(const TopK& task) {
  check_top_k(task);
  for (std::size_t i = 0; i < task.count; ++i) {
    task.residual[i] = radix::accumulate(task.residual[i], task.gradient[i]);
  }
  if (task.k == 0) return;
  const radix::Selection threshold = find_threshold({task.residual, task.count}, task.k);
  std::uint32_t above = 0;
  std::uint32_t equal = 0;
  for (std::size_t i = 0; i < task.count; ++i) {
    const std::uint32_t key = radix::key_of(task.residual[i]);
    const bool is_above = key > threshold.prefix;
    const bool is_equal = key == threshold.prefix;
    if (is_above || (is_equal && equal < threshold.need)) {
      const std::uint32_t at = radix::place(above, equal, threshold.need);
      task.indices[at] = static_cast<std::uint32_t>(i);
      task.values[at] = task.residual[i];
      task.residual[i] = 0.0f;
    }
    above += is_above;
    equal += is_equal;
  }
}

}  // namespace kolo
