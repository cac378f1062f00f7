#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/job_values.h"

namespace kolo::test {

/// A collective under way, with its buffers.
struct DelayedSum {
  std::vector<std::byte> input, result;
  std::vector<TensorBuffers> tensors = {};  ///< Of a grouped one: the two halves of the buffers.
  std::function<void()> begin = {}, wait = {};
  bool is_kept = true;  ///< Whether this rank has a result.
  RowSums rows = {};    ///< That of a row-sparse one.
};

/// Every collective that reduces, in the job and in groups, with random delays before each call.
/// `seed` decides about delays and about the order of calls, which differ from rank to rank. No bit
/// may depend on it. `wire`, if given, is a 16-bit dtype on the wire of a set of gradients; only
/// then are there all-reduces of 16-bit floats, which some algorithms refuse.
class DelayedSums {
 public:
  DelayedSums(Runtime& job, unsigned seed, std::optional<DType> wire)
      : job_(job),
        random_(seed * 1000 + static_cast<unsigned>(job.rank())),
        all_reduces_16_bits_(wire.has_value()) {
    std::vector<int> reversed;
    for (int rank = job.world_size(); rank-- > 0;) reversed.push_back(rank);
    groups_.push_back(job.group(reversed, {.name = "reversed"}));
    groups_.push_back(*job.split(job.rank() % 2, job.rank(), {.name = "parity"}));
    groups_.push_back(job.node_group({.name = "node"}));
    groups_.push_back(job.cross_group({.name = "cross"}));
    sets_.push_back(make_set("plain", std::nullopt));
    if (wire) sets_.push_back(make_set("rounded", wire));
  }

  void round(int round, Digest& digest) {
    std::vector<std::shared_ptr<DelayedSum>> sums;
    add_all(job_, round, kLarge, sums);
    for (Group& group : groups_) add_all(group, round, kSmall, sums);
    std::vector<std::shared_ptr<DelayedSum>> order = sums;
    std::ranges::shuffle(order, random_);
    for (const auto& sum : order) {
      delay();
      sum->begin();
    }
    for (GradientSet& set : sets_) mark(set, round);
    for (const auto& sum : order) sum->wait();
    for (GradientSet& set : sets_) set.wait();

    Digest own;
    for (const auto& sum : sums) {
      if (sum->is_kept) own.add({sum->result.data(), sum->result.size(), DType::kUInt8});
      own.add(sum->rows.rows());
    }
    for (const GradientSet& set : sets_) {
      for (std::size_t i = 0; i < set.size(); ++i) own.add(set.view(i));
    }
    // Ranks get different parts; together they are the same on all ranks.
    auto all = static_cast<std::int64_t>(own.value());
    const BufferView view{&all, 1, DType::kInt64};
    job_.all_reduce("digest", view);
    digest.add(view);
  }

 private:
  /// Elements of each rank's part.
  static constexpr std::size_t kSmall = 150, kLarge = 20'001;
  static constexpr std::size_t kCounts[] = {1, 1000, 70'001, 7, 4096};

  using Sums = std::vector<std::shared_ptr<DelayedSum>>;
  using Begin = std::function<Ticket(Group&, const std::string& name, DelayedSum&, BufferView)>;

  /// Nothing in half of all cases, else up to 1 ms.
  void delay() {
    const auto drawn = random_() % 2000;
    if (drawn < 1000) std::this_thread::sleep_for(std::chrono::microseconds(drawn));
  }

  template <typename Value>
  static void store(std::byte* at, Value value) {
    std::memcpy(at, &value, sizeof(value));
  }

  /// Numbers whose sums are rounded, so that the order of summing shows in the bits.
  std::vector<std::byte> contribution(DType dtype, int round, std::size_t count) const {
    std::vector<std::byte> bytes(count * size_of(dtype));
    for (std::size_t i = 0; i < count; ++i) {
      const float value = fraction(job_.rank(), round, i);
      std::byte* const at = bytes.data() + i * size_of(dtype);
      if (dtype == DType::kFloat64) {
        store(at, static_cast<double>(value) / 3);
      } else if (dtype == DType::kBFloat16) {  // The upper half of a float.
        store(at, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
      } else {
        store(at, value);
        if (dtype == DType::kComplex64) {
          store(at + sizeof(float), fraction(job_.rank(), round + 1, i));
        }
      }
    }
    return bytes;
  }

  /// One call of `group` that takes `inputs` elements and gives `results`.
  std::shared_ptr<DelayedSum> make(Group& group, const std::string& name, DType dtype, int round,
                                   std::size_t inputs, std::size_t results, const Begin& begin) {
    auto sum = std::make_shared<DelayedSum>();
    sum->input = contribution(dtype, round, inputs);
    sum->result.resize(results * size_of(dtype));
    const BufferView view{sum->result.data(), results, dtype};
    const std::string full = name + " " + std::string(to_string(dtype));
    auto ticket = std::make_shared<std::optional<Ticket>>();
    DelayedSum& of = *sum;
    sum->begin = [&group, full, &of, view, begin, ticket] {
      *ticket = begin(group, full, of, view);
    };
    sum->wait = [ticket] { (*ticket)->wait(); };
    return sum;
  }

  /// Splits the buffers of a grouped call into two tensors of as many parts.
  static void split(DelayedSum& sum, std::size_t parts_of_input, std::size_t parts_of_result,
                    std::size_t part, DType dtype) {
    const std::size_t first = part / 3;
    sum.tensors = {{.input = sum.input.data(), .result = sum.result.data(), .count = first},
                   {.input = sum.input.data() + parts_of_input * first * size_of(dtype),
                    .result = sum.result.data() + parts_of_result * first * size_of(dtype),
                    .count = part - first}};
  }

  void add_all(Group& group, int round, std::size_t part, Sums& sums) {
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kComplex64}) {
      if (dtype != DType::kBFloat16 || all_reduces_16_bits_) {
        add_all_reduces(group, dtype, round, part, sums);
      }
      add_reduces(group, dtype, round, part, sums);
      add_scattered(group, dtype, round, part, sums);
    }
    add_rows(group, round, RowForm::kRows, sums);
    add_rows(group, round, RowForm::kTable, sums);
  }

  void add_all_reduces(Group& group, DType dtype, int round, std::size_t count, Sums& sums) {
    const auto add = [&](const std::string& name, const Begin& begin) -> DelayedSum& {
      sums.push_back(make(group, name, dtype, round, count, count, begin));
      return *sums.back();
    };
    add("all_reduce", [](Group& of, const auto& name, auto& sum, const auto& view) {
      return of.all_reduce_async(name, sum.input.data(), view, ReduceOp::kAverage);
    });
    DelayedSum& in_place =
        add("in place", [](Group& of, const auto& name, auto&, const auto& view) {
          return of.all_reduce_async(name, view, {ReduceOp::kSum, {.before = 0.3, .after = 1.7}});
        });
    std::ranges::copy(in_place.input, in_place.result.begin());
    add("premultiplied", [](Group& of, const auto& name, auto& sum, const auto& view) {
      return of.all_reduce_async(name, sum.input.data(), view,
                                 {ReduceOp::kPremulSum, {.before = 0.3 + of.rank()}});
    });
    split(add("grouped all_reduce",
              [dtype](Group& of, const auto& name, auto& sum, const auto&) {
                return of.all_reduce_async(name, Tensors{.dtype = dtype, .each = sum.tensors});
              }),
          1, 1, count, dtype);
  }

  void add_reduces(Group& group, DType dtype, int round, std::size_t count, Sums& sums) {
    const int root = group.size() - 1;
    sums.push_back(make(group, "reduce", dtype, round, count, count,
                        [root](Group& of, const auto& name, auto& sum, const auto& view) {
                          return of.reduce_async(
                              name, sum.input.data(), view, root,
                              {ReduceOp::kPremulSum, {.before = 0.7 * of.rank()}});
                        }));
    sums.back()->is_kept = group.rank() == root;
    sums.push_back(make(group, "grouped reduce", dtype, round, count, count,
                        [dtype, root](Group& of, const auto& name, auto& sum, const auto&) {
                          return of.reduce_async(name, Tensors{.dtype = dtype, .each = sum.tensors},
                                                 root);
                        }));
    split(*sums.back(), 1, 1, count, dtype);
    sums.back()->is_kept = group.rank() == root;
  }

  void add_scattered(Group& group, DType dtype, int round, std::size_t part, Sums& sums) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const std::size_t all = ranks * part;
    // Parts of different sizes, some of them empty.
    std::vector<std::size_t> counts(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) counts[rank] = rank % 3 * part;
    std::size_t uneven = 0;
    for (const std::size_t count : counts) uneven += count;
    sums.push_back(make(group, "reduce_scatter", dtype, round, all, part,
                        [](Group& of, const auto& name, auto& sum, const auto& view) {
                          return of.reduce_scatter_async(name, sum.input.data(), view);
                        }));
    sums.push_back(make(
        group, "uneven", dtype, round, uneven + 1, counts[static_cast<std::size_t>(group.rank())],
        [counts](Group& of, const auto& name, auto& sum, const auto& view) {
          return of.reduce_scatter_async(name, sum.input.data(), view, ReduceOp::kAverage, counts);
        }));
    sums.push_back(make(group, "grouped reduce_scatter", dtype, round, all, part,
                        [dtype](Group& of, const auto& name, auto& sum, const auto&) {
                          return of.reduce_scatter_async(
                              name, Tensors{.dtype = dtype, .each = sum.tensors});
                        }));
    split(*sums.back(), ranks, 1, part, dtype);
  }

  /// Rows that ranks share, some of them more than once.
  void add_rows(Group& group, int round, RowForm exchange, Sums& sums) {
    constexpr std::size_t kHeight = 200, kWidth = 17;
    auto sum = std::make_shared<DelayedSum>();
    auto indices = std::make_shared<std::vector<std::int64_t>>();
    for (int i = 0; i < 40 + 10 * job_.rank(); ++i) {
      indices->push_back(i * i * (job_.rank() + 3) % (i % 2 == 0 ? 20 : 200));
    }
    sum->input = contribution(DType::kFloat32, round, indices->size() * kWidth);
    auto ticket = std::make_shared<std::optional<RowTicket>>();
    DelayedSum& of = *sum;
    sum->begin = [&group, &of, exchange, indices, ticket] {
      *ticket = group.sparse_all_reduce_async(exchange == RowForm::kRows ? "rows" : "table",
                                              {.height = kHeight, .width = kWidth}, *indices,
                                              of.input.data(), {.exchange = exchange});
    };
    sum->wait = [&of, ticket] { of.rows = (*ticket)->sums(); };
    sums.push_back(std::move(sum));
  }

  GradientSet make_set(const std::string& name, std::optional<DType> wire) {
    std::vector<GradientSpec> specs;
    for (const std::size_t count : kCounts) {
      const bool own = specs.size() % 2 == 0;
      memory_.emplace_back(own ? count : 0);
      specs.push_back({.name = "gradient " + std::to_string(specs.size()),
                       .shape = {count},
                       .data = own ? memory_.back().data() : nullptr});
    }
    return job_.register_gradients(name, std::move(specs), {.wire_dtype = wire});
  }

  void mark(GradientSet& set, int round) {
    for (std::size_t index = set.size(); index-- > 0;) {
      auto* const values = static_cast<float*>(set.view(index).data);
      for (std::size_t i = 0; i < set.view(index).count; ++i) {
        values[i] = fraction(job_.rank(), round, i);
      }
      delay();
      set.ready(index);
    }
  }

  Runtime& job_;
  std::mt19937 random_;
  const bool all_reduces_16_bits_;
  std::vector<Group> groups_;
  std::vector<std::vector<float>> memory_;
  std::vector<GradientSet> sets_;
};

}  // namespace kolo::test
