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

#include "comm/base/reduction.h"
#include "comm/collective/compile.h"
#include "comm/kernels/reduce_kernels.h"
#include "comm/kernels/reference_kernels.h"
#include "comm/schedule/executor.h"
#include "comm/schedule/reduce_team.h"
#include "tests/support/in_process_transport.h"
#include "tests/support/node_shapes.h"

namespace kolo::test {

/// Nodes of so many ranks, and how they sum.
struct Job {
  std::vector<int> nodes;
  std::string algorithm;
};

inline std::string text(const Job& job) {
  return test::shape_text(job.nodes) + " " + job.algorithm;
}

/// The algorithm sums every element in one place in the order of ranks, so that its bits are those
/// of the reference kernel.
inline bool sums_in_order(const AlgorithmRequest& request) {
  const auto& algorithm = request.algorithm();
  return algorithm && algorithm->flat() != nullptr && algorithm->flat()->sums_in_one_place;
}

/// What `rank` contributes to element `index`: anything if sums are in order, else 1 or 2, so that
/// sums and products of a few ranks are exact in every dtype and order.
inline double contribution(bool in_order, int rank, std::size_t index, std::uint64_t iteration) {
  const std::uint64_t place =
      (static_cast<std::uint64_t>(rank) * 1'000'003 + index) * 8 + iteration;
  if (!in_order)
    return static_cast<double>((static_cast<std::size_t>(rank) + index + iteration) % 2 + 1);
  return static_cast<double>(place * 0x9e3779b97f4a7c15u >> 40) / (1 << 20) - 8;
}

/// The value of one element of `layout`, as the reference kernel combines it.
inline double combined(const BucketLayout& layout, bool in_order, int ranks, std::size_t index,
                       std::uint64_t iteration) {
  std::vector<std::array<std::byte, 8>> elements(static_cast<std::size_t>(ranks));
  std::vector<const void*> sources;
  for (int rank = 0; rank < ranks; ++rank) {
    const double value = contribution(in_order, rank, index, iteration);
    sources.push_back(elements[static_cast<std::size_t>(rank)].data());
    reference::convert(layout.dtype, elements[static_cast<std::size_t>(rank)].data(),
                       DType::kFloat64, &value, 1, 1.0);
  }
  std::array<std::byte, 8> result{};
  reference::reduce(layout.dtype, layout.op, result.data(), sources, 1,
                    layout.op == ReduceOp::kAverage ? 1.0 / ranks : 1.0);
  double value = 0;
  reference::convert(DType::kFloat64, &value, layout.dtype, result.data(), 1, 1.0);
  return value;
}

/// The caller's tensors of a bucket: of up to 45 elements each, with a gap of five before the next;
/// out of place as many again for the contributions.
class UserTensors final : public Packer {
 public:
  UserTensors(const BucketLayout& layout, DType tensor_dtype)
      : bucket_dtype_(layout.dtype), dtype_(tensor_dtype) {
    for (std::size_t begin = 0; begin < layout.count; begin += kPeriod) {
      tensors_.emplace_back(std::min(kTensor, layout.count - begin) * size_of(dtype_));
    }
    if (layout.out_of_place) inputs_ = tensors_;
  }

  /// Null for an element of a gap.
  std::byte* element(std::size_t index) { return element(tensors_, index); }
  /// The same of the contribution.
  std::byte* input(std::size_t index) {
    return element(inputs_.empty() ? tensors_ : inputs_, index);
  }

  void pack(std::size_t offset, std::size_t count, void* bucket) override {
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* const to = static_cast<std::byte*>(bucket) + i * size_of(bucket_dtype_);
      const std::byte* const from = input(offset + i);
      if (from == nullptr) {
        std::memset(to, 0, size_of(bucket_dtype_));
      } else {
        convert(bucket_dtype_, to, dtype_, from, 1, 1.0);
      }
    }
  }
  void unpack(std::size_t offset, std::size_t count, const void* bucket, Stores stores) override {
    for (std::size_t i = 0; i < count; ++i) {
      const auto* const from = static_cast<const std::byte*>(bucket) + i * size_of(bucket_dtype_);
      std::byte* const to = element(offset + i);
      if (to != nullptr) convert(dtype_, to, bucket_dtype_, from, 1, 1.0, stores);
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

/// One rank of a job with buckets of all kinds.
class Rank {
 public:
  /// `helpers` threads help it.
  Rank(InProcessHub& hub, int rank, int helpers = 0)
      : ranks_(hub.grid().world_size()),
        transport_(hub.transport(rank)),
        team_(helpers, WaitPolicy{}),
        executor_(*transport_, nullptr, &team_) {}

  /// What is in flight refers to the executor's memory, so the transport ends first.
  ~Rank() { transport_->shutdown(false); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Executor& executor() { return executor_; }
  Transport& transport() { return *transport_; }

  void add(const BucketLayout& layout, const ProcessGrid& grid, const CompileOptions& options,
           std::uint64_t first_iteration = 0) {
    const auto bucket = static_cast<BucketId>(buckets_.size());
    Schedule schedule = compile_all_reduce(transport_->rank(), layout, grid, options);
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
    for (std::size_t i = 0; i < started.layout.count; ++i) {
      const double value = contribution(started.in_order, transport_->rank(), i, iteration);
      std::byte* const to = started.input(i);
      if (to != nullptr) convert(started.dtype, to, DType::kFloat64, &value, 1, 1.0);
    }
    executor_.start(bucket, iteration);
  }

  /// The bytes of all elements, side by side.
  std::vector<std::byte> result(BucketId bucket) const {
    const Bucket& finished = buckets_[bucket];
    const std::size_t size = size_of(finished.dtype);
    std::vector<std::byte> bytes(finished.layout.count * size);
    std::size_t end = 0;
    for (std::size_t i = 0; i < finished.layout.count; ++i) {
      const std::byte* const from = finished.element(i);
      if (from == nullptr) continue;
      std::memcpy(bytes.data() + end, from, size);
      end += size;
    }
    bytes.resize(end);
    return bytes;
  }

  /// Empty, or what is wrong with the result of an iteration.
  std::string wrong(BucketId bucket, std::uint64_t iteration) {
    const Bucket& finished = buckets_[bucket];
    const BucketLayout& layout = finished.layout;
    for (std::size_t i = 0; i < layout.count; ++i) {
      const std::byte* const from = finished.element(i);
      if (from == nullptr) continue;
      if (layout.out_of_place && !holds_contribution(finished, i, iteration)) {
        return "rank " + std::to_string(transport_->rank()) + " bucket " + std::to_string(bucket) +
               " has another contribution in element " + std::to_string(i);
      }
      double value = 0;
      convert(DType::kFloat64, &value, finished.dtype, from, 1, 1.0);
      const double expected = combined(layout, finished.in_order, ranks_, i, iteration);
      if (value == expected) continue;
      return "rank " + std::to_string(transport_->rank()) + " bucket " + std::to_string(bucket) +
             " (" + std::string(to_string(layout.dtype)) + " " + std::string(to_string(layout.op)) +
             ") iteration " + std::to_string(iteration) + " element " + std::to_string(i) + ": " +
             std::to_string(value) + " and not " + std::to_string(expected);
    }
    return {};
  }

 private:
  struct Bucket {
    BucketLayout layout;
    bool in_order = false;
    DType dtype = DType::kFloat32;              // of the tensors
    std::byte* data = nullptr;                  // of one in place
    std::shared_ptr<UserTensors> tensors = {};  // of one that is not

    std::byte* element(std::size_t index) const {
      return tensors ? tensors->element(index) : data + index * size_of(dtype);
    }
    std::byte* input(std::size_t index) const {
      return tensors ? tensors->input(index) : element(index);
    }
  };

  bool holds_contribution(const Bucket& bucket, std::size_t i, std::uint64_t iteration) const {
    const double value = contribution(bucket.in_order, transport_->rank(), i, iteration);
    std::array<std::byte, 8> expected{};
    convert(bucket.dtype, expected.data(), DType::kFloat64, &value, 1, 1.0);
    return std::equal(bucket.input(i), bucket.input(i) + size_of(bucket.dtype), expected.data());
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

/// All numbers, operations and placements. 16-bit sums are left to algorithms that round once.
inline std::vector<BucketLayout> all_layouts(const Job& job) {
  const bool rounds_once = sums_in_order(job.algorithm) || job.algorithm.ends_with("direct");
  std::vector<BucketLayout> layouts;
  for (DType dtype : kNumberDTypes) {
    for (ReduceOp op : kAllReduceOps) {
      if (!takes(op, dtype)) continue;
      const bool rounds = op != ReduceOp::kMin && op != ReduceOp::kMax;
      if (is_16bit_float(dtype) && rounds && !rounds_once) continue;
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
