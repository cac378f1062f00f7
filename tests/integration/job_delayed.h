#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/job_delayed_sets.h"
#include "tests/integration/job_values.h"

namespace kolo::test {

/// A collective under way, with its buffers.
struct DelayedSum {
  std::vector<std::byte> input, result;
  std::vector<Tensor> tensors = {};  ///< Of a grouped one: the two halves of the buffers.
  std::function<void()> begin = {}, wait = {};
  bool is_kept = true;  ///< Whether this rank has a result.
  RowSums rows = {};    ///< That of a row-sparse one.
};

/// Every collective that reduces, and sets of gradients, in the job and in groups, with random
/// delays before each call; then ranks join one after the other. `seed` decides about delays and
/// about the order of calls, which differ from rank to rank. No bit may depend on it. `wire`, if
/// given, is a 16-bit dtype of gradients and on their wire; only then do all-reduces send 16-bit
/// floats, which some algorithms refuse.
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
    using Shapes = std::vector<DelayedSets::Shape>;
    sets_.emplace_back(job, Shapes{{1}, {1000}, {10'001, 7}, {7}, {64, 64}}, wire);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      sets_.emplace_back(groups_[i], Shapes{{1000}, {1}, {1667, 3}}, wire, i, groups_.size());
    }
  }

  void round(int round, Digest& digest) {
    Digest own;
    Sums sums;
    for (const DType dtype : kDTypes) add_all(job_, dtype, round, kLarge, sums);
    for (std::size_t i = 0; i < groups_.size(); ++i) {  // Each has two of them.
      add_all(groups_[i], kDTypes[i], round, kSmall, sums);
      add_all(groups_[i], kDTypes[i + 1], round, kSmall, sums);
    }
    for (Group* const group : all_groups()) {
      add_rows(*group, round, RowForm::kRows, sums);
      add_rows(*group, round, RowForm::kTable, sums);
    }
    run(sums, sets_, round, own);
    if (round % 2 == 0) {
      run_out_of_data(groups_[0], kSmall, sets_[1], round, own);
    } else {
      run_out_of_data(job_, kLarge, sets_[0], round, own);
    }
    // Ranks get different parts; together they are the same on all ranks.
    auto all = static_cast<std::int64_t>(own.value());
    const BufferView view{&all, 1, DType::kInt64};
    job_.all_reduce("digest", view).wait();
    digest.add(view);
  }

 private:
  /// Elements of each rank's part. Several threads add up the large ones, but for 16-bit floats.
  static constexpr std::size_t kSmall = 150, kLarge = 60'001;
  static constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                      DType::kBFloat16, DType::kComplex64};
  /// A rank joins after one or two steps.
  static constexpr int kMostSteps = 2;
  static constexpr Reduction kAverageAsBFloat16{ReduceOp::kAverage, {}, DType::kBFloat16};

  using Sums = std::vector<std::shared_ptr<DelayedSum>>;
  using Begin = std::function<Ticket(Group&, const std::string& name, DelayedSum&, BufferView)>;

  std::vector<Group*> all_groups() {
    std::vector<Group*> all{&job_};
    for (Group& group : groups_) all.push_back(&group);
    return all;
  }

  /// Nothing in half of all cases, else up to 1 ms.
  void delay() {
    const auto drawn = random_() % 2000;
    if (drawn < 1000) std::this_thread::sleep_for(std::chrono::microseconds(drawn));
  }

  /// Begins all sums, in an order of this rank, and an iteration of all sets.
  void run(const Sums& sums, std::span<DelayedSets> sets, int round, Digest& own) {
    Sums order = sums;
    std::ranges::shuffle(order, random_);
    for (const auto& sum : order) {
      delay();
      sum->begin();
    }
    for (DelayedSets& each : sets) each.mark(round, [this] { delay(); });
    for (const auto& sum : order) sum->wait();
    for (DelayedSets& each : sets) each.wait();
    for (const auto& sum : sums) {
      if (sum->is_kept) own.add({sum->result.data(), sum->result.size(), DType::kUInt8});
      own.add(sum->rows.rows());
    }
    for (const DelayedSets& each : sets) each.add_to(own);
  }

  /// Each rank of the group goes on for another number of steps.
  void run_out_of_data(Group& group, std::size_t part, DelayedSets& sets, int round, Digest& own) {
    const int steps = 1 + (group.rank() + round) % kMostSteps;
    for (int step = 0; step < steps; ++step) {
      const int use = (round + 1) * 10 + step;
      Sums sums;
      add_all_reduces(group, DType::kFloat32, use, part, sums);
      add_scattered(group, DType::kFloat32, use, part, sums);
      add_rows(group, use, RowForm::kRows, sums);
      run(sums, {&sets, 1}, use, own);
    }
    group.join();
    sets.add_to(own);
  }

  /// Numbers whose sums are rounded, so that the order of summing shows in the bits.
  std::vector<std::byte> contribution(DType dtype, int round, std::size_t count) const {
    std::vector<std::byte> bytes(count * size_of(dtype));
    write_fractions({bytes.data(), count, dtype}, job_.rank(), round);
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
    const std::size_t rest = part - first, bytes = first * size_of(dtype);
    sum.tensors = {{{sum.input.data(), parts_of_input * first, dtype},
                    {sum.result.data(), parts_of_result * first, dtype}},
                   {{sum.input.data() + parts_of_input * bytes, parts_of_input * rest, dtype},
                    {sum.result.data() + parts_of_result * bytes, parts_of_result * rest, dtype}}};
  }

  /// From the input of a sum to its result.
  static Tensor apart(const DelayedSum& sum, const BufferView& result, PartCounts counts = {}) {
    return {
        {sum.input.data(), sum.input.size() / size_of(result.dtype), result.dtype}, result, counts};
  }

  static void put_in_place(DelayedSum& sum) { std::ranges::copy(sum.input, sum.result.begin()); }

  /// Elements that may be bfloat16 on the wire.
  static bool is_cast(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

  void add_all(Group& group, DType dtype, int round, std::size_t part, Sums& sums) {
    if (!is_16bit_float(dtype) || all_reduces_16_bits_) {
      add_all_reduces(group, dtype, round, part, sums);
    }
    add_reduces(group, dtype, round, part, sums);
    add_scattered(group, dtype, round, part, sums);
  }

  void add_all_reduces(Group& group, DType dtype, int round, std::size_t count, Sums& sums) {
    const auto add = [&](const std::string& name, const Begin& begin) -> DelayedSum& {
      sums.push_back(make(group, name, dtype, round, count, count, begin));
      return *sums.back();
    };
    add("all_reduce", [](Group& of, const auto& name, auto& sum, const auto& view) {
      return of.all_reduce(name, apart(sum, view), ReduceOp::kAverage);
    });
    put_in_place(add("in place", [](Group& of, const auto& name, auto&, const auto& view) {
      return of.all_reduce(name, view, {ReduceOp::kSum, {.before = 0.3, .after = 1.7}});
    }));
    if (!is_complex(dtype)) {
      add("product", [](Group& of, const auto& name, auto& sum, const auto& view) {
        return of.all_reduce(name, apart(sum, view), ReduceOp::kProd);
      });
    }
    if (is_cast(dtype) && all_reduces_16_bits_) {
      add("rounded", [](Group& of, const auto& name, auto& sum, const auto& view) {
        return of.all_reduce(name, apart(sum, view), kAverageAsBFloat16);
      });
    }
    add("premultiplied", [](Group& of, const auto& name, auto& sum, const auto& view) {
      return of.all_reduce(name, apart(sum, view),
                           {ReduceOp::kPremulSum, {.before = 0.3 + of.rank()}});
    });
    split(add("grouped all_reduce", [](Group& of, const auto& name, auto& sum,
                                       const auto&) { return of.all_reduce(name, sum.tensors); }),
          1, 1, count, dtype);
  }

  void add_reduces(Group& group, DType dtype, int round, std::size_t count, Sums& sums) {
    const int root = group.size() - 1;
    sums.push_back(make(group, "reduce", dtype, round, count, count,
                        [root](Group& of, const auto& name, auto& sum, const auto& view) {
                          return of.reduce(name, apart(sum, view), root,
                                           {ReduceOp::kPremulSum, {.before = 0.7 * of.rank()}});
                        }));
    sums.back()->is_kept = group.rank() == root;
    sums.push_back(make(group, "reduce in place", dtype, round, count, count,
                        [root](Group& of, const auto& name, auto&, const auto& view) {
                          return of.reduce(name, view, root);
                        }));
    put_in_place(*sums.back());
    sums.back()->is_kept = group.rank() == root;
    sums.push_back(make(group, "grouped reduce", dtype, round, count, count,
                        [root](Group& of, const auto& name, auto& sum, const auto&) {
                          return of.reduce(name, sum.tensors, root);
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
                          return of.reduce_scatter(name, apart(sum, view));
                        }));
    sums.push_back(make(group, "reduce_scatter in place", dtype, round, all, all,
                        [](Group& of, const auto& name, auto&, const auto& view) {
                          return of.reduce_scatter(name, view);
                        }));
    put_in_place(*sums.back());
    if (is_cast(dtype)) {
      sums.push_back(make(group, "rounded reduce_scatter", dtype, round, all, part,
                          [](Group& of, const auto& name, auto& sum, const auto& view) {
                            return of.reduce_scatter(name, apart(sum, view), kAverageAsBFloat16);
                          }));
    }
    sums.push_back(
        make(group, "uneven", dtype, round, uneven, counts[static_cast<std::size_t>(group.rank())],
             [counts](Group& of, const auto& name, auto& sum, const auto& view) {
               return of.reduce_scatter(name, apart(sum, view, counts), ReduceOp::kAverage);
             }));
    sums.push_back(make(group, "grouped reduce_scatter", dtype, round, all, part,
                        [](Group& of, const auto& name, auto& sum, const auto&) {
                          return of.reduce_scatter(name, sum.tensors);
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
    auto ticket = std::make_shared<std::optional<Ticket>>();
    DelayedSum& of = *sum;
    sum->begin = [&group, &of, exchange, indices, ticket] {
      const kolo::TableRows rows{
          .table = {.height = kHeight, .width = kWidth, .dtype = DType::kFloat32},
          .indices = *indices,
          .rows = of.input.data()};
      *ticket = group.sparse_all_reduce(exchange == RowForm::kRows ? "rows" : "table", rows,
                                        {.exchange = exchange});
    };
    sum->wait = [&of, ticket] { of.rows = std::move((*ticket)->sums().front()); };
    sums.push_back(std::move(sum));
  }

  Runtime& job_;
  std::mt19937 random_;
  const bool all_reduces_16_bits_;
  std::vector<Group> groups_;
  std::vector<DelayedSets> sets_;  ///< Of the job, then of each group.
};

}  // namespace kolo::test
