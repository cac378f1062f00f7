#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "compression/kernels/block_energy.h"
#include "compression/sparse_all_reduce.h"
#include "compression/value_codec.h"
#include "tests/compression/sparse_numbers.h"

namespace kolo::test {

/// A step of blocks of one rank each, in plain loops.
struct PlainBlocks {
  SparseOptions options;
  int ranks = 1;
  std::vector<Tensors> residuals = {};  ///< By rank.
  Tensors result = {};
  std::vector<std::size_t> pieces = {};  ///< By owner: blocks of which it has a value.
  std::vector<std::size_t> values = {};

  struct Value {
    std::size_t tensor = 0, block = 0, element = 0;
  };

  static int exponent(DType wire, const std::vector<float>& numbers) {
    float largest = 0;
    for (const float number : numbers) largest = std::max(largest, std::fabs(number));
    return fitting_exponent(wire, largest);
  }
  static std::vector<float> rounded(DType wire, std::vector<float> numbers) {
    round_to_wire(wire, exponent(wire, numbers), numbers, numbers);
    return numbers;
  }

  std::vector<Value> choose() const {
    std::vector<Value> chosen;
    for (std::size_t t = 0; t < options.tensors.size(); ++t) {
      const std::size_t count = options.tensors[t].count;
      std::vector<std::pair<float, std::size_t>> scores;  // Negative, so that they sort.
      for (std::size_t begin = 0; begin < count; begin += options.block) {
        const std::size_t size = std::min(options.block, count - begin);
        float score = 0;
        for (const Tensors& own : residuals) {
          score += reference::block_energy(std::span(own[t]).subspan(begin, size));
        }
        scores.emplace_back(-score, begin);
      }
      std::ranges::sort(scores);
      scores.resize(pairs_to_keep(options.density, scores.size()));
      std::ranges::sort(scores, {}, &std::pair<float, std::size_t>::second);
      for (const auto& [score, begin] : scores) {
        const std::size_t end = std::min(begin + options.block, count);
        for (std::size_t i = begin; i < end; ++i) chosen.push_back({t, begin, i});
      }
    }
    return chosen;
  }

  /// Calls visit(first, end) for each run of `chosen` with one block, and one owner if it matters.
  template <typename Visit>
  void for_runs(const std::vector<Value>& chosen, bool by_owner, Visit visit) const {
    const auto owner = [&](std::size_t position) {
      const auto all = static_cast<std::size_t>(ranks);
      const std::size_t each = chosen.size() / all, more = chosen.size() % all;
      return position < more * (each + 1) ? position / (each + 1) : (position - more) / each;
    };
    for (std::size_t begin = 0; begin < chosen.size();) {
      std::size_t end = begin + 1;
      while (end < chosen.size() && chosen[end].tensor == chosen[begin].tensor &&
             chosen[end].block == chosen[begin].block &&
             (!by_owner || owner(end) == owner(begin))) {
        ++end;
      }
      visit(begin, end, owner(begin));
      begin = end;
    }
  }

  void step(const std::vector<Tensors>& gradients, float divisor) {
    residuals.resize(gradients.size());
    for (std::size_t rank = 0; rank < gradients.size(); ++rank) {
      if (residuals[rank].empty()) {
        for (const auto& tensor : gradients[rank]) residuals[rank].emplace_back(tensor.size());
      }
      for (std::size_t t = 0; t < options.tensors.size(); ++t) {
        for (std::size_t i = 0; i < gradients[rank][t].size(); ++i) {
          residuals[rank][t][i] += gradients[rank][t][i];
        }
      }
    }
    const std::vector<Value> chosen = choose();
    std::vector<float> sums;
    for (Tensors& own : residuals) {
      std::vector<float> sent(chosen.size());
      for_runs(chosen, false, [&](std::size_t begin, std::size_t end, std::size_t) {
        std::vector<float> run;
        for (std::size_t j = begin; j < end; ++j) {
          run.push_back(own[chosen[j].tensor][chosen[j].element]);
        }
        std::ranges::copy(rounded(options.wire, run),
                          sent.begin() + static_cast<std::ptrdiff_t>(begin));
      });
      for (std::size_t j = 0; j < chosen.size(); ++j) {
        own[chosen[j].tensor][chosen[j].element] -= sent[j];
      }
      if (sums.empty()) {
        sums = sent;
      } else {
        for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += sent[j];
      }
    }
    result.clear();
    for (const FeedbackTensor& tensor : options.tensors) result.emplace_back(tensor.count);
    pieces.assign(gradients.size(), 0);
    values.assign(gradients.size(), 0);
    for_runs(chosen, true, [&](std::size_t begin, std::size_t end, std::size_t owner) {
      const std::vector<float> run(sums.begin() + static_cast<std::ptrdiff_t>(begin),
                                   sums.begin() + static_cast<std::ptrdiff_t>(end));
      const std::vector<float> back = rounded(options.result_wire, run);
      for (std::size_t j = begin; j < end; ++j) {
        const Value& value = chosen[j];
        residuals[owner][value.tensor][value.element] += run[j - begin] - back[j - begin];
        result[value.tensor][value.element] = back[j - begin] / divisor;
      }
      ++pieces[owner];
      values[owner] += end - begin;
    });
  }
};

}  // namespace kolo::test
