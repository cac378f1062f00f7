#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/device/device_communicator.h"
#include "comm/schedule/device_streams.h"
#include "comm/schedule/executor.h"
#include "compression/gradient_codec.h"
#include "tests/compression/sparse_numbers.h"
#include "tests/support/device/host_communicator.h"
#include "tests/support/device/host_device.h"
#include "tests/support/device/host_stream.h"
#include "tests/support/in_process_transport.h"
#include "tests/support/seeded_scheduler.h"

/// All ranks of a job with one compressed bucket. Real executors run real schedules.
namespace kolo::test {

/// The caller's tensors, at their offsets in a codec's bucket.
class JobTensors final : public Packer {
 public:
  explicit JobTensors(const SparseOptions& options) : offsets_(tensor_offsets(options)) {
    for (const FeedbackTensor& tensor : options.tensors) tensors.emplace_back(tensor.count);
  }

  void pack(std::size_t offset, std::size_t count, void* bucket, Stores) override {
    auto* const to = static_cast<float*>(bucket);
    for_elements(offset, count, [&](std::size_t i, float* own) { to[i] = own ? *own : 0.0f; });
  }
  void unpack(std::size_t offset, std::size_t count, const void* bucket, Stores) override {
    const auto* const from = static_cast<const float*>(bucket);
    for_elements(offset, count, [&](std::size_t i, float* own) {
      if (own != nullptr) *own = from[i];
    });
  }
  Piece piece(std::size_t offset, std::size_t count) override {
    const std::size_t t = tensor_of(offset);
    const std::size_t first = offset - offsets_[t];
    std::vector<float>& tensor = tensors[t];
    const std::size_t end = t + 1 < offsets_.size() ? offsets_[t + 1] : offset + count;
    if (first >= tensor.size()) return {.data = nullptr, .count = std::min(count, end - offset)};
    return {.data = reinterpret_cast<std::byte*>(tensor.data() + first),
            .count = std::min(count, tensor.size() - first)};
  }

  Tensors tensors;

 private:
  // An empty tensor has the same offset as the next one.
  std::size_t tensor_of(std::size_t offset) const {
    const auto next = std::upper_bound(offsets_.begin(), offsets_.end(), offset);
    return static_cast<std::size_t>(next - offsets_.begin()) - 1;
  }
  template <typename Visit>
  void for_elements(std::size_t offset, std::size_t count, Visit visit) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t t = tensor_of(offset + i);
      const std::size_t place = offset + i - offsets_[t];
      visit(i, place < tensors[t].size() ? &tensors[t][place] : nullptr);
    }
  }

  std::vector<std::size_t> offsets_;
};

/// Packs the tensors on a stream of a stand-in device.
class JobStreamPacker final : public StreamPacker {
 public:
  explicit JobStreamPacker(std::shared_ptr<JobTensors> tensors) : tensors_(std::move(tensors)) {}
  void pack(Stream& stream, std::size_t offset, std::size_t count, void* bucket) override {
    as_host(stream).enqueue([=, this] {
      tensors_->pack(offset, count, bucket, Stores::kCached);
      return true;
    });
  }
  void unpack(Stream& stream, std::size_t offset, std::size_t count, const void* bucket) override {
    as_host(stream).enqueue([=, this] {
      tensors_->unpack(offset, count, bucket, Stores::kCached);
      return true;
    });
  }

 private:
  std::shared_ptr<JobTensors> tensors_;
};

/// The stand-in devices of a job, with a group per node and one of all ranks.
class StandInDevices {
 public:
  StandInDevices(const ProcessGrid& grid, std::uint64_t seed) : contexts_(ranks_of(grid).size()) {
    for (DeviceContext& context : contexts_) {
      context.device = std::make_unique<SeededHostDevice>(seed++);
    }
    for (int node = 0; node < grid.num_nodes(); ++node) {
      join(grid.ranks_of_node(node), &DeviceContext::node);
    }
    join(ranks_of(grid), &DeviceContext::world);
  }

  DeviceContext& operator[](int rank) { return contexts_[static_cast<std::size_t>(rank)]; }
  SeededHostDevice& device(int rank) {
    return static_cast<SeededHostDevice&>(*(*this)[rank].device);
  }

 private:
  static std::vector<int> ranks_of(const ProcessGrid& grid) {
    std::vector<int> ranks(static_cast<std::size_t>(grid.world_size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  void join(const std::vector<int>& members,
            std::unique_ptr<DeviceCommunicator> DeviceContext::*group) {
    hubs_.push_back(std::make_unique<HostCommunicatorHub>(members));
    for (std::size_t i = 0; i < members.size(); ++i) {
      DeviceContext& context = (*this)[members[i]];
      context.*group = hubs_.back()->group(static_cast<int>(i), *context.device);
    }
  }

  std::vector<std::unique_ptr<HostCommunicatorHub>> hubs_;
  std::vector<DeviceContext> contexts_;
};

/// One rank of the job, with a bucket for sparse steps and one for dense steps.
class CompressedRank {
 public:
  /// `device` is null for tensors in host memory.
  CompressedRank(InProcessHub& hub, int rank, const SparseOptions& options, Placement placement,
                 DeviceContext* device = nullptr)
      : grid_(hub.grid()),
        options_(on_device(options, device)),
        placement_(placement),
        transport_(hub.transport(rank)),
        streams_(device != nullptr ? std::make_unique<DeviceStreams>(*transport_, grid_,
                                                                     DeviceAccess::of(*device))
                                   : nullptr),
        executor_(*transport_, streams_.get()),
        codec(options.method->make_codec(rank, grid_, options_)),
        tensors(std::make_shared<JobTensors>(options)) {
    add(compile_sparse);
    add(compile_dense_step);
  }
  /// Shuts the transport down first, because work in flight refers to the executor's memory.
  ~CompressedRank() { transport_->shutdown(false); }
  CompressedRank(const CompressedRank&) = delete;
  CompressedRank& operator=(const CompressedRank&) = delete;

  void start(const Tensors& gradients) {
    running_ = codec->is_dense() ? 1 : 0;
    tensors->tensors = gradients;
    if (placement_ == Placement::kInPlace)
      tensors->pack(0, bucket_count(options_), memory(), Stores::kCached);
    executor_.start(running_, iterations_[running_]++);
  }
  bool poll() {
    const bool moved = transport_->poll();
    const bool computed = executor_.poll();
    executor_.take_finished();
    executor_.take_enqueued();
    return computed || moved;
  }
  bool busy() const { return executor_.busy(); }
  /// Returns the tensors after a step.
  const Tensors& results() {
    if (placement_ == Placement::kInPlace) {
      tensors->unpack(0, bucket_count(options_), memory(), Stores::kCached);
    }
    return tensors->tensors;
  }
  std::uint64_t sent_bytes() const {
    std::uint64_t sum = 0;
    for (int peer = 0; peer < grid_.world_size(); ++peer)
      sum += transport_->traffic(peer).data_sent;
    return sum;
  }
  std::size_t network_bytes() const { return executor_.network_bytes(running_); }

 private:
  static SparseOptions on_device(SparseOptions options, DeviceContext* device) {
    if (device != nullptr) options.device = std::make_shared<FeedbackStream>(*device->device);
    return options;
  }
  void add(Schedule (*compile)(int, const BucketLayout&, const ProcessGrid&, const SparseOptions&,
                               const CompileOptions&)) {
    const BucketLayout bucket = streams_ ? sparse_device_bucket(options_, ReduceOp::kAverage)
                                         : sparse_bucket(options_, ReduceOp::kAverage, placement_);
    Schedule schedule = compile(transport_->rank(), bucket, grid_, options_, {});
    const ArenaNeeds needs = arena_needs(schedule);
    Binding binding{.name = "bucket " + std::to_string(iterations_.size()),
                    .bucket = static_cast<BucketId>(iterations_.size()),
                    .first_flag = next_flag_,
                    .arena_offset = arena_end_,
                    .staging_offset = arena_end_ + needs.bucket_bytes,
                    .scale = 1.0 / grid_.world_size(),
                    .packer = tensors,
                    .codec = codec,
                    .stream_packer = std::make_shared<JobStreamPacker>(tensors)};
    next_flag_ += schedule.flag_count;
    arena_end_ += needs.total();
    iterations_.push_back(0);
    executor_.add(std::move(schedule), std::move(binding));
  }
  float* memory() { return reinterpret_cast<float*>(executor_.bucket_memory(running_)); }

  const ProcessGrid& grid_;
  const SparseOptions options_;
  const Placement placement_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<DeviceStreams> streams_;  // null in host memory
  Executor executor_;
  std::vector<std::uint64_t> iterations_;  // by bucket
  std::uint32_t next_flag_ = 0;
  std::size_t arena_end_ = 0;
  BucketId running_ = 0;

 public:
  std::shared_ptr<GradientCodec> codec;
  std::shared_ptr<JobTensors> tensors;
};

class CompressedJob {
 public:
  CompressedJob(const std::vector<int>& nodes, const SparseOptions& options,
                Placement placement = Placement::kUser, std::uint64_t seed = 1,
                MemoryKind memory = MemoryKind::kHost)
      : seed_(seed),
        hub_(ProcessGrid::with_node_sizes(nodes),
             {.arena_bytes = 4 * sizeof(float) * bucket_count(options) + (1U << 12),
              .flags_per_peer = 64,
              .counters = 64}) {
    if (memory == MemoryKind::kDevice) devices_.emplace(hub_.grid(), 100 * seed);
    for (int rank = 0; rank < hub_.grid().world_size(); ++rank) {
      ranks_.push_back(std::make_unique<CompressedRank>(hub_, rank, options, placement,
                                                        devices_ ? &(*devices_)[rank] : nullptr));
    }
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  CompressedRank& rank(int i) { return *ranks_[static_cast<std::size_t>(i)]; }
  GradientCodec& codec(int i) { return *rank(i).codec; }
  SeededHostDevice& device(int i) { return devices_->device(i); }

  /// Runs one step of all ranks, in a seeded interleaving. Returns false if it was skipped. Errors:
  /// std::runtime_error if ranks differ about that, or if the step does not end.
  bool step(const std::vector<Tensors>& gradients) {
    for (int i = 0; i < size(); ++i) rank(i).start(gradients[static_cast<std::size_t>(i)]);
    std::vector<SeededScheduler::Pollable> pollables;
    for (const auto& rank : ranks_) pollables.push_back([&rank] { return rank->poll(); });
    for (int i = 0; devices_ && i < size(); ++i) {
      pollables.push_back([this, i] { return devices_->device(i).step(); });
    }
    SeededScheduler(seed_++, std::move(pollables))
        .run_until(
            [this] {
              return std::ranges::none_of(ranks_, [](const auto& rank) { return rank->busy(); });
            },
            20'000'000);
    const bool finite = codec(0).finite();
    for (int i = 0; i < size(); ++i) {
      if (codec(i).finite() != finite) throw std::runtime_error("ranks differ about a step");
      finite ? codec(i).commit() : codec(i).abort();
    }
    return finite;
  }

 private:
  std::uint64_t seed_;
  InProcessHub hub_;
  std::optional<StandInDevices> devices_;  // empty in host memory
  std::vector<std::unique_ptr<CompressedRank>> ranks_;
};

}  // namespace kolo::test
