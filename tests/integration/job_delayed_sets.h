#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/job_values.h"

namespace kolo::test {

/// Sets of gradients of one group: with every divisor, dense and sparse, some of them absent.
class DelayedSets {
 public:
  using Shape = std::vector<std::size_t>;

  /// `shapes`: those of the gradients of each set; matrices of 4096 elements and more may be
  /// sparse. `wire`, if given: a 16-bit dtype of some sets and on the wire of others. Of all kinds
  /// of sets, every `stride`-th from `first` on.
  DelayedSets(Group& group, const std::vector<Shape>& shapes, std::optional<DType> wire,
              std::size_t first = 0, std::size_t stride = 1)
      : rank_(group.rank()) {
    const std::vector<Kind> all = kinds(wire);
    for (std::size_t i = first; i < all.size(); i += stride) kinds_.push_back(all[i]);
    for (const Kind& kind : kinds_) {
      std::vector<GradientSpec> specs;
      for (const Shape& shape : shapes) {
        GradientSpec spec{.name = "gradient " + std::to_string(specs.size()),
                          .shape = shape,
                          .dtype = kind.dtype};
        if (specs.size() % 2 == 0) {
          spec.data = memory_.emplace_back(spec.count() * size_of(kind.dtype)).data();
        }
        specs.push_back(std::move(spec));
      }
      sets_.push_back(group.register_gradients(kind.name, std::move(specs), kind.options));
    }
  }

  /// Marks all gradients of all sets, with a delay before each.
  void mark(int round, const std::function<void()>& delay) {
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      GradientSet& set = sets_[i];
      if (kinds_[i].options.divisor == Divisor::kSamples) set.set_samples((rank_ + round) % 4);
      for (std::size_t index = set.size(); index-- > 0;) {
        delay();
        if (kinds_[i].has_absent && is_absent(round, index)) {
          set.absent(index);
          continue;
        }
        write_fractions(set.view(index), rank_, round);
        set.ready(index);
      }
    }
  }

  void wait() {
    for (GradientSet& set : sets_) set.wait();
  }

  void add_to(Digest& digest) const {
    for (const GradientSet& set : sets_) {
      for (std::size_t index = 0; index < set.size(); ++index) digest.add(set.view(index));
    }
  }

 private:
  struct Kind {
    const char* name;
    GradientOptions options = {};
    DType dtype = DType::kFloat32;
    bool has_absent = true;
  };

  static std::vector<Kind> kinds(std::optional<DType> wire) {
    std::vector<Kind> all = {
        {.name = "plain", .has_absent = false},
        {.name = "sum", .options = {.op = ReduceOp::kSum}, .dtype = DType::kFloat64},
        {.name = "contributing", .options = {.divisor = Divisor::kContributingRanks}},
        {.name = "samples", .options = {.divisor = Divisor::kSamples}},
        {.name = "top-k", .options = {.compression = "topk(0.05)"}},
        {.name = "owners", .options = {.compression = "topk(0.05,route=owners)"}},
    };
    if (wire) {
      all.push_back({.name = "rounded", .options = {.wire_dtype = wire}});
      all.push_back({.name = "rounded samples",
                     .options = {.wire_dtype = wire, .divisor = Divisor::kSamples}});
      all.push_back({.name = "16 bits", .dtype = *wire});
    }
    return all;
  }

  bool is_absent(int round, std::size_t index) const {
    return (static_cast<std::size_t>(rank_ + round) + index) % 3 == 0;
  }

  int rank_;
  std::vector<Kind> kinds_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<GradientSet> sets_;
};

}  // namespace kolo::test
