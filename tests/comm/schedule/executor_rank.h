#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/compile.h"
#include "comm/base/reduction.h"
#include "comm/kernels/reduce_kernels.h"
#include "comm/kernels/reference_kernels.h"
#include "comm/schedule/executor.h"
#include "comm/schedule/reduce_team.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/in_process_transport.h"
#include "tests/support/node_shapes.h"

namespace kolo::test {

/// The number of ranks on each node, and the algorithm of the all-reduces.
struct Job {
  std::vector<int> nodes;
  std::string algorithm;
};

inline std::string text(const Job& job) {
  return test::shape_text(job.nodes) + " " + job.algorithm;
}

/// Returns whether the algorithm sums each element in one place and in rank order. Its bits then
/// equal those of the reference kernel.
inline bool sums_in_order(const AlgorithmRequest& request) {
  const std::vector<std::string_view> names = request.names_for(CollectiveKind::kAllReduce);
  if (names.empty() || names.front() == kHierarchical) return false;
  const AllReduce& algorithm = find_all_reduce(names.front());
  return algorithm.flat() != nullptr && algorithm.sums_in_one_place();
}

/// Returns the contribution of `rank` to element `index`. It is arbitrary if sums are in order.
/// Otherwise it is 1 or 2, so that sums and products of a few ranks are exact in every dtype and
/// order; see `unit_of`.
inline double contribution(bool in_order, int rank, std::size_t index, std::uint64_t iteration) {
  const std::uint64_t place =
      (static_cast<std::uint64_t>(rank) * 1'000'003 + index) * 8 + iteration;
  if (!in_order)
    return static_cast<double>((static_cast<std::size_t>(rank) + index + iteration) % 2 + 1);
  return static_cast<double>(place * 0x9e3779b97f4a7c15u >> 40) / (1 << 20) - 8;
}

/// Returns a factor of contributions that are not in order. The sum of two contributions to a
/// float16 average may be beyond the range of float16; the average is not, and it is exact.
inline double unit_of(const BucketLayout& layout, bool in_order, int ranks) {
  const bool is_average = layout.op == ReduceOp::kAverage && layout.dtype == DType::kFloat16;
  return is_average && !in_order && ranks <= 5 ? ranks * 0x1.8p12 : 1;
}

/// Number of elements that are filled and compared per call. One by one is slow without
/// optimisation.
inline constexpr std::size_t kMostAtOnce = 256;
using SomeElements = std::array<double, kMostAtOnce>;

/// Writes the contribution of `rank` to `count` elements from `begin` on.
inline void contribute(SomeElements& values, const BucketLayout& layout, bool in_order, int ranks,
                       int rank, std::size_t begin, std::size_t count, std::uint64_t iteration) {
  const double unit = unit_of(layout, in_order, ranks);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = unit * contribution(in_order, rank, begin + i, iteration);
  }
}

/// Returns `count` elements of a bucket from `begin` on, combined by the reference kernel.
inline SomeElements combined(const BucketLayout& layout, bool in_order, int ranks,
                             std::size_t begin, std::size_t count, std::uint64_t iteration) {
  SomeElements values;
  std::vector<SomeElements> elements(static_cast<std::size_t>(ranks));  // room for any dtype
  std::vector<const void*> sources;
  for (int rank = 0; rank < ranks; ++rank) {
    contribute(values, layout, in_order, ranks, rank, begin, count, iteration);
    void* const source = elements[static_cast<std::size_t>(rank)].data();
    reference::convert(layout.dtype, source, DType::kFloat64, values.data(), count, 1.0);
    sources.push_back(source);
  }
  SomeElements result;
  reference::reduce(layout.dtype, layout.op, result.data(), sources, count,
                    layout.op == ReduceOp::kAverage ? 1.0 / ranks : 1.0);
  reference::convert(DType::kFloat64, values.data(), layout.dtype, result.data(), count, 1.0);
  return values;
}

/// The caller's tensors of a bucket. Each has up to 45 elements, and a gap of five elements follows
/// it. Out of place, there are as many tensors again for the contributions.
class UserTensors final : public Packer {
 public:
  UserTensors(const BucketLayout& layout, DType tensor_dtype)
      : bucket_dtype_(layout.dtype), dtype_(tensor_dtype) {
    for (std::size_t begin = 0; begin < layout.count; begin += kPeriod) {
      tensors_.emplace_back(std::min(kTensor, layout.count - begin) * size_of(dtype_));
    }
    if (layout.out_of_place) inputs_ = tensors_;
  }

  /// Returns the address of an element; null in a gap.
  std::byte* element(std::size_t index) { return element(tensors_, index); }
  /// Returns the address of the element's contribution; null in a gap.
  std::byte* input(std::size_t index) {
    return element(inputs_.empty() ? tensors_ : inputs_, index);
  }

  void pack(std::size_t offset, std::size_t count, void* bucket, Stores) override {
    auto* to = static_cast<std::byte*>(bucket);
    for (const std::size_t end = offset + count; offset < end;) {
      const Piece next = piece(offset, end - offset);
      if (next.data == nullptr) {
        std::memset(to, 0, next.count * size_of(bucket_dtype_));
      } else {
        convert(bucket_dtype_, to, dtype_, next.input, next.count, 1.0);
      }
      to += next.count * size_of(bucket_dtype_);
      offset += next.count;
    }
  }
  void unpack(std::size_t offset, std::size_t count, const void* bucket, Stores stores) override {
    const auto* from = static_cast<const std::byte*>(bucket);
    for (const std::size_t end = offset + count; offset < end;) {
      const Piece next = piece(offset, end - offset);
      if (next.data != nullptr) {
        convert(dtype_, next.data, bucket_dtype_, from, next.count, 1.0, stores);
      }
      from += next.count * size_of(bucket_dtype_);
      offset += next.count;
    }
  }
  Piece piece(std::size_t offset, std::size_t count) override {
    const std::size_t place = offset % kPeriod;
    return {.data = element(offset),
            .input = input(offset),
            .count = std::min(count, (place < kTensor ? kTensor : kPeriod) - place)};
  }

 private:
  static constexpr std::size_t kTensor = 45, kPeriod = 50;
  using Tensors = std::vector<std::vector<std::byte>>;

  std::byte* element(Tensors& tensors, std::size_t index) {
    if (index % kPeriod >= kTensor) return nullptr;
    return tensors[index / kPeriod].data() + index % kPeriod * size_of(dtype_);
  }

  DType bucket_dtype_, dtype_;
  Tensors tensors_, inputs_;
};

/// One rank of a job, with any number of buckets.
class Rank {
 public:
  /// `helpers`: number of helper threads.
  Rank(InProcessHub& hub, int rank, int helpers = 0)
      : ranks_(hub.grid().world_size()),
        transport_(hub.transport(rank)),
        team_(helpers, WaitPolicy{}),
        executor_(*transport_, nullptr, &team_) {}

  /// Shuts the transport down first, because work in flight refers to the executor's memory.
  ~Rank() { transport_->shutdown(false); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Executor& executor() { return executor_; }
  Transport& transport() { return *transport_; }
  bool poll() {
    const bool moved = transport_->poll();
    return executor_.poll() || moved;
  }

  void add(const BucketLayout& layout, const ProcessGrid& grid, const CompileOptions& options,
           std::uint64_t first_iteration = 0) {
    const auto bucket = static_cast<BucketId>(buckets_.size());
    Schedule schedule = test::compile_all_reduce(transport_->rank(), layout, grid, options);
    Binding binding{.name = "bucket " + std::to_string(bucket),
                    .bucket = bucket,
                    .first_iteration = first_iteration,
                    .first_flag = next_flag_,
                    .arena_offset = arena_end_,
                    .staging_offset = arena_end_ + arena_needs(schedule).bucket_bytes,
                    .scale = layout.op == ReduceOp::kAverage ? 1.0 / ranks_ : 1.0};
    next_flag_ += schedule.flag_count;
    arena_end_ += arena_needs(schedule).total();
    Bucket added{.layout = layout, .in_order = sums_in_order(options.algorithm)};
    if (layout.placement != Placement::kInPlace) {
      if (layout.placement == Placement::kStaged) added.dtype = DType::kFloat64;
      if (layout.placement == Placement::kUser) added.dtype = layout.dtype;
      added.tensors = std::make_shared<UserTensors>(layout, added.dtype);
      binding.packer = added.tensors;
    } else {
      added.dtype = layout.dtype;
      added.data = transport_->memory(transport_->rank()).data() + binding.arena_offset;
    }
    buckets_.push_back(std::move(added));
    executor_.add(std::move(schedule), std::move(binding));
  }

  void start(BucketId bucket, std::uint64_t iteration) {
    const Bucket& started = buckets_[bucket];
    SomeElements values;
    for_each_run(started, [&](const Run& run, std::size_t begin) {
      contribute(values, started.layout, started.in_order, ranks_, transport_->rank(), begin,
                 run.count, iteration);
      convert(started.dtype, run.input, DType::kFloat64, values.data(), run.count, 1.0);
      return true;
    });
    executor_.start(bucket, iteration);
  }

  /// Returns the bytes of all elements, in order.
  std::vector<std::byte> result(BucketId bucket) const {
    const Bucket& finished = buckets_[bucket];
    const std::size_t size = size_of(finished.dtype);
    std::vector<std::byte> bytes(finished.layout.count * size);
    std::size_t end = 0;
    for_each_run(finished, [&](const Run& run, std::size_t) {
      std::memcpy(bytes.data() + end, run.data, run.count * size);
      end += run.count * size;
      return true;
    });
    bytes.resize(end);
    return bytes;
  }

  /// Describes the first wrong element of an iteration's result. Empty if the result is right.
  std::string wrong(BucketId bucket, std::uint64_t iteration) {
    const Bucket& finished = buckets_[bucket];
    std::string text;
    for_each_run(finished, [&](const Run& run, std::size_t begin) {
      text = wrong(finished, run, begin, iteration);
      return text.empty();
    });
    if (text.empty()) return {};
    return "rank " + std::to_string(transport_->rank()) + " bucket " + std::to_string(bucket) +
           " (" + std::string(to_string(finished.layout.dtype)) + " " +
           std::string(to_string(finished.layout.op)) + ") iteration " + std::to_string(iteration) +
           text;
  }

 private:
  struct Bucket {
    BucketLayout layout;
    bool in_order = false;
    DType dtype = DType::kFloat32;              // of the tensors
    std::byte* data = nullptr;                  // for a bucket in place
    std::shared_ptr<UserTensors> tensors = {};  // for a bucket not in place
  };

  /// Contiguous elements of the result, and the contributions to them.
  struct Run {
    std::byte* data = nullptr;
    std::byte* input = nullptr;
    std::size_t count = 0;
  };

  /// Calls `visit(run, begin)` for each run of contiguous elements until it returns false.
  template <typename Visit>
  static void for_each_run(const Bucket& bucket, const Visit& visit) {
    for (std::size_t begin = 0; begin < bucket.layout.count;) {
      Run run{.count = std::min(kMostAtOnce, bucket.layout.count - begin)};
      if (bucket.tensors) {
        run = {.data = bucket.tensors->element(begin),
               .input = bucket.tensors->input(begin),
               .count = bucket.tensors->piece(begin, run.count).count};
      } else {
        run.data = run.input = bucket.data + begin * size_of(bucket.dtype);
      }
      if (run.data != nullptr && !visit(run, begin)) return;
      begin += run.count;
    }
  }

  std::string wrong(const Bucket& bucket, const Run& run, std::size_t begin,
                    std::uint64_t iteration) const {
    SomeElements values;
    if (bucket.layout.out_of_place) {
      contribute(values, bucket.layout, bucket.in_order, ranks_, transport_->rank(), begin,
                 run.count, iteration);
      SomeElements contributed;
      convert(bucket.dtype, contributed.data(), DType::kFloat64, values.data(), run.count, 1.0);
      if (std::memcmp(run.input, contributed.data(), run.count * size_of(bucket.dtype)) != 0) {
        return " has another contribution in an element from " + std::to_string(begin) + " on";
      }
    }
    convert(DType::kFloat64, values.data(), bucket.dtype, run.data, run.count, 1.0);
    const SomeElements expected =
        combined(bucket.layout, bucket.in_order, ranks_, begin, run.count, iteration);
    for (std::size_t i = 0; i < run.count; ++i) {
      if (values[i] == expected[i]) continue;
      return " element " + std::to_string(begin + i) + ": " + std::to_string(values[i]) +
             " and not " + std::to_string(expected[i]);
    }
    return {};
  }

  int ranks_;
  std::unique_ptr<Transport> transport_;
  ReduceTeam team_;
  Executor executor_;
  std::uint32_t next_flag_ = 0;
  std::size_t arena_end_ = 0;
  std::vector<Bucket> buckets_;
};

inline std::vector<std::unique_ptr<Rank>> make_ranks(InProcessHub& hub, int helpers = 0) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < hub.grid().world_size(); ++rank) {
    ranks.push_back(std::make_unique<Rank>(hub, rank, helpers));
  }
  return ranks;
}

/// Returns layouts of all number dtypes, operations and placements. 16-bit sums are included only
/// if the algorithm rounds once.
inline std::vector<BucketLayout> all_layouts(const Job& job) {
  const bool rounds_once = sums_in_order(job.algorithm) || job.algorithm.ends_with("direct");
  std::vector<BucketLayout> layouts;
  for (DType dtype : kNumberDTypes) {
    for (ReduceOp op : kEveryReduceOp) {
      if (!takes(op, dtype)) continue;
      if (BucketLayout{.dtype = dtype, .op = op}.rounds() && !rounds_once) continue;
      for (Placement placement : {Placement::kInPlace, Placement::kStaged, Placement::kUser}) {
        const bool out_of_place = placement != Placement::kInPlace && layouts.size() % 2 == 1;
        layouts.push_back({.count = 131 + layouts.size(),
                           .dtype = dtype,
                           .op = op,
                           .placement = placement,
                           .out_of_place = out_of_place});
      }
    }
  }
  return layouts;
}

}  // namespace kolo::test
