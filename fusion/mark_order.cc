#include "fusion/mark_order.h"

#include <algorithm>
#include <numeric>

#include "comm/base/check.h"

namespace kolo {

void MarkOrder::begin_iteration() {
  turns_.emplace_back(gradients_);
  marked_ = 0;
}

void MarkOrder::mark(std::size_t gradient) { turns_.back()[gradient] = marked_++; }

std::vector<std::size_t> MarkOrder::order() const {
  ensure(turns_.size() > 1, "an order of gradients that was not observed");
  std::vector<std::size_t> medians(gradients_), turns(turns_.size() - 1);
  const auto middle = turns.begin() + static_cast<std::ptrdiff_t>(turns.size() / 2);
  for (std::size_t gradient = 0; gradient < gradients_; ++gradient) {
    for (std::size_t i = 0; i < turns.size(); ++i) turns[i] = turns_[i + 1][gradient];
    std::ranges::nth_element(turns, middle);
    medians[gradient] = *middle;
  }
  std::vector<std::size_t> order(gradients_);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t gradient) { return medians[gradient]; });
  return order;
}

}  // namespace kolo
