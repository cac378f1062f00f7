#include "tests/support/device/host_communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"
#include "comm/base/mutex.h"
#include "comm/kernels/reduce_kernels.h"
#include "tests/support/device/host_stream.h"

namespace kolo {
namespace {

enum class Kind : std::uint8_t {
  kReduceScatter,
  kAllGather,
  kAllReduce,
  kReduceParts,
  kGatherParts,
  kExchange,
  kEnd
};

/// A copy of a `GroupTensor` that owns its counts.
struct Tensor {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::vector<std::size_t> counts = {};
};

std::vector<Tensor> kept(std::span<const GroupTensor> tensors) {
  std::vector<Tensor> all;
  for (const GroupTensor& each : tensors) {
    all.push_back({.source = static_cast<const std::byte*>(each.source),
                   .target = static_cast<std::byte*>(each.target),
                   .counts = {each.counts.begin(), each.counts.end()}});
  }
  return all;
}

/// Returns a text such as "4, 0, 4" or "4, 0, 4 + 1, 1, 1".
std::string describe_counts(const std::vector<Tensor>& tensors) {
  std::vector<std::string> each;
  for (const Tensor& tensor : tensors) {
    each.push_back(fmt::format("{}", fmt::join(tensor.counts, ", ")));
  }
  return fmt::format("{}", fmt::join(each, " + "));
}

/// One collective call of one rank.
struct Call {
  Kind kind = Kind::kEnd;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::vector<Tensor> tensors = {};                 ///< For calls with parts.
  std::vector<GroupPart> sent = {}, received = {};  ///< For an exchange.

  /// Returns whether the calls of the ranks `mine` and `theirs` match.
  bool matches(const Call& other, std::size_t mine, std::size_t theirs, std::size_t ranks) const {
    return kind == other.kind && dtype == other.dtype && op == other.op && count == other.count &&
           std::ranges::equal(tensors, other.tensors, {}, &Tensor::counts, &Tensor::counts) &&
           sent.size() == other.sent.size() && exchanges_alike(other, mine, theirs, ranks);
  }
  bool exchanges_alike(const Call& other, std::size_t mine, std::size_t theirs,
                       std::size_t ranks) const {
    for (std::size_t first = 0; first < sent.size(); first += ranks) {
      if (sent[first + theirs].count != other.received[first + mine].count ||
          received[first + theirs].count != other.sent[first + mine].count) {
        return false;
      }
    }
    return true;
  }
  std::string to_string() const {
    switch (kind) {
      case Kind::kReduceScatter:
        return fmt::format("a reduce-scatter ({}) in parts of {} {}", kolo::to_string(op), count,
                           kolo::to_string(dtype));
      case Kind::kAllGather:
        return fmt::format("an all-gather of parts of {} {}", count, kolo::to_string(dtype));
      case Kind::kAllReduce:
        return fmt::format("an all-reduce ({}) of {} {}", kolo::to_string(op), count,
                           kolo::to_string(dtype));
      case Kind::kReduceParts:
        return fmt::format("a reduction ({}) in parts of {} {}", kolo::to_string(op),
                           describe_counts(tensors), kolo::to_string(dtype));
      case Kind::kGatherParts:
        return fmt::format("a gathering of parts of {} {}", describe_counts(tensors),
                           kolo::to_string(dtype));
      case Kind::kExchange:
        return fmt::format("an exchange of {}", kolo::to_string(dtype));
      case Kind::kEnd:
        return "the end of the group";
    }
    return {};
  }
};

}  // namespace

/// The current call, and the ranks that have made it. Calls compute under the lock, so that no
/// memory is accessed after an abort has returned.
class HostCommunicatorHub::Table {
 public:
  explicit Table(std::vector<int> members)
      : members_(std::move(members)), entries_(members_.size()), sources_(members_.size()) {}

  int size() const { return static_cast<int>(members_.size()); }

  void take(int rank) {
    const MutexLock lock(mutex_);
    check(rank >= 0 && rank < size(), "the group has no such rank");
    check(!std::exchange(entry(rank).taken, true), "the rank was taken before");
  }

  /// Makes the `number`-th call of `rank`. Returns true if the call is complete.
  bool attempt(int rank, std::uint64_t number, const Call& call) {
    const MutexLock lock(mutex_);
    if (entry(rank).released || number < completed_) return true;
    if (failure_ || number > completed_) return false;
    if (!entry(rank).call) {
      entry(rank).call = call;
      ++arrived_;
      if (!agrees(rank)) return false;
    }
    if (arrived_ < size()) return false;
    compute(call);
    for (RankEntry& entry : entries_) entry.call.reset();
    arrived_ = 0;
    ++completed_;
    return true;
  }

  void launch_together() {
    const MutexLock lock(mutex_);
    launches_together_ = true;
  }

  /// Notes the first `calls` calls of `rank`. Returns whether the last one may be enqueued.
  bool may_launch(int rank, std::uint64_t calls) {
    const MutexLock lock(mutex_);
    entry(rank).called = calls;
    return !launches_together_ || std::ranges::all_of(entries_, [calls](const RankEntry& each) {
      return each.called >= calls;
    });
  }

  bool failed() const {
    const MutexLock lock(mutex_);
    return failure_.has_value();
  }

  /// Returns the first failure for `rank`, unless it is the rank's own abort.
  std::optional<Error> failure(int rank) const {
    const MutexLock lock(mutex_);
    if (!failure_ || failure_->peer == member(rank)) return std::nullopt;
    Error seen = *failure_;
    seen.rank = member(rank);
    return seen;
  }

  /// Ends the waits of `rank`, and fails the calls of other ranks if there is no failure yet.
  void release(int rank) {
    const MutexLock lock(mutex_);
    entry(rank).released = true;
    if (failure_) return;
    failure_ = Error{.code = ErrorCode::kPeerLost,
                     .peer = member(rank),
                     .what = "the peer aborted its collectives"};
  }

 private:
  struct RankEntry {
    bool taken = false;
    bool released = false;
    std::uint64_t called = 0;       ///< Number of calls so far.
    std::optional<Call> call = {};  ///< The call that the rank has made and that is not complete.
  };

  int member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  RankEntry& entry(int rank) KOLO_REQUIRES(mutex_) {
    return entries_[static_cast<std::size_t>(rank)];
  }

  bool agrees(int rank) KOLO_REQUIRES(mutex_) {
    for (int other = 0; other < size(); ++other) {
      if (!entry(other).call ||
          entry(other).call->matches(*entry(rank).call, static_cast<std::size_t>(other),
                                     static_cast<std::size_t>(rank), entries_.size())) {
        continue;
      }
      failure_ = Error{
          .code = ErrorCode::kMismatch,
          .what = fmt::format("collective {} of the group is {} on rank {}, but {} on rank {}",
                              completed_, entry(other).call->to_string(), member(other),
                              entry(rank).call->to_string(), member(rank))};
      return false;
    }
    return true;
  }

  void compute(const Call& shape) KOLO_REQUIRES(mutex_) {
    switch (shape.kind) {
      case Kind::kReduceScatter:
      case Kind::kReduceParts:
        for (std::size_t tensor = 0; tensor < shape.tensors.size(); ++tensor) {
          combine_parts(shape, tensor);
        }
        break;
      case Kind::kAllGather:
      case Kind::kGatherParts:
        for (std::size_t tensor = 0; tensor < shape.tensors.size(); ++tensor) {
          spread_parts(shape, tensor);
        }
        break;
      case Kind::kAllReduce:
        if (shape.count == 0) break;
        for (std::size_t rank = 0; rank < entries_.size(); ++rank) {
          sources_[rank] = entries_[rank].call->source;
        }
        combine(shape, shape.count, entries_[0].call->target);
        for (std::size_t rank = 1; rank < entries_.size(); ++rank) {
          std::memcpy(entries_[rank].call->target, entries_[0].call->target,
                      shape.count * size_of(shape.dtype));
        }
        break;
      case Kind::kExchange:
        for (std::size_t from = 0; from < entries_.size(); ++from) hand_out(from, shape.dtype);
        break;
      case Kind::kEnd:
        break;
    }
  }

  void combine_parts(const Call& shape, std::size_t tensor) KOLO_REQUIRES(mutex_) {
    std::size_t offset = 0;  // bytes
    for (std::size_t part = 0; part < entries_.size(); ++part) {
      const std::size_t count = shape.tensors[tensor].counts[part];
      if (count == 0) continue;
      for (std::size_t rank = 0; rank < entries_.size(); ++rank) {
        sources_[rank] = entries_[rank].call->tensors[tensor].source + offset;
      }
      combine(shape, count, entries_[part].call->tensors[tensor].target);
      offset += count * size_of(shape.dtype);
    }
  }

  /// Copies each rank's part into every target, unless it is already there.
  void spread_parts(const Call& shape, std::size_t tensor) KOLO_REQUIRES(mutex_) {
    std::size_t offset = 0;  // bytes
    for (std::size_t part = 0; part < entries_.size(); ++part) {
      const std::size_t bytes = shape.tensors[tensor].counts[part] * size_of(shape.dtype);
      if (bytes == 0) continue;
      const std::byte* const source = entries_[part].call->tensors[tensor].source;
      for (const RankEntry& entry : entries_) {
        std::byte* const target = entry.call->tensors[tensor].target + offset;
        if (target != source) std::memcpy(target, source, bytes);
      }
      offset += bytes;
    }
  }

  /// Copies the data that rank `from` sends to its receivers.
  void hand_out(std::size_t from, DType dtype) KOLO_REQUIRES(mutex_) {
    const std::vector<GroupPart>& sent = entries_[from].call->sent;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const std::size_t to = i % entries_.size();
      const GroupPart& received = entries_[to].call->received[i - to + from];
      if (sent[i].count == 0 || sent[i].data == received.data) continue;
      std::memcpy(received.data, sent[i].data, sent[i].count * size_of(dtype));
    }
  }

  /// Combines `count` elements of all `sources_` into `target`.
  void combine(const Call& shape, std::size_t count, std::byte* target) KOLO_REQUIRES(mutex_) {
    const double scale =
        shape.op == ReduceOp::kAverage ? 1.0 / static_cast<double>(entries_.size()) : 1.0;
    reduce(shape.dtype, shape.op, target, sources_, count, scale);
  }

  const std::vector<int> members_;
  mutable Mutex mutex_;
  std::vector<RankEntry> entries_ KOLO_GUARDED_BY(mutex_);
  std::vector<const void*> sources_ KOLO_GUARDED_BY(mutex_);
  std::uint64_t completed_ KOLO_GUARDED_BY(mutex_) = 0;
  int arrived_ KOLO_GUARDED_BY(mutex_) = 0;
  bool launches_together_ KOLO_GUARDED_BY(mutex_) = false;
  std::optional<Error> failure_ KOLO_GUARDED_BY(mutex_);
};

namespace {

using Table = HostCommunicatorHub::Table;

class HostCommunicator final : public DeviceCommunicator {
 public:
  HostCommunicator(Table& table, int rank, Device& device)
      : table_(table), rank_(rank), device_(device) {}

  ~HostCommunicator() override {
    if (state_ != CommunicatorState::kFinalized) table_.release(rank_);
  }

  int rank() const override { return rank_; }
  int size() const override { return table_.size(); }
  std::string describe() const override { return fmt::format("host memory, {} ranks", size()); }

  DeviceMemory allocate(std::size_t bytes) override {
    return device_.allocate(bytes, MemoryKind::kDevice);
  }

  void reduce_scatter(Stream& stream, const void* whole, void* part, std::size_t part_count,
                      DType dtype, ReduceOp op) override {
    enqueue_equal(stream, Kind::kReduceScatter, whole, part, part_count, dtype, op);
  }

  void all_gather(Stream& stream, const void* part, void* whole, std::size_t part_count,
                  DType dtype) override {
    enqueue_equal(stream, Kind::kAllGather, part, whole, part_count, dtype, ReduceOp::kSum);
  }

  void reduce_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype,
                    ReduceOp op) override {
    enqueue(stream,
            {.kind = Kind::kReduceParts, .dtype = dtype, .op = op, .tensors = kept(tensors)});
  }

  void gather_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype) override {
    enqueue(stream, {.kind = Kind::kGatherParts, .dtype = dtype, .tensors = kept(tensors)});
  }

  void exchange(Stream& stream, std::span<const GroupPart> sent,
                std::span<const GroupPart> received, DType dtype) override {
    enqueue(stream, {.kind = Kind::kExchange,
                     .dtype = dtype,
                     .sent = {sent.begin(), sent.end()},
                     .received = {received.begin(), received.end()}});
  }

  void all_reduce(Stream& stream, const void* source, void* target, std::size_t count, DType dtype,
                  ReduceOp op) override {
    check(count == 0 || (source != nullptr && target != nullptr), "a collective without memory");
    enqueue(stream, {.kind = Kind::kAllReduce,
                     .dtype = dtype,
                     .op = op,
                     .count = count,
                     .source = static_cast<const std::byte*>(source),
                     .target = static_cast<std::byte*>(target)});
  }

  bool is_launching() override {
    if (!launching_ || !table_.may_launch(rank_, calls_)) return launching_.has_value();
    launching_->first->enqueue(std::move(launching_->second));
    launching_.reset();
    return false;
  }

  std::optional<Error> async_error() override { return table_.failure(rank_); }

  bool abort(std::chrono::milliseconds) override {
    if (state_ == CommunicatorState::kFinalized) return true;
    table_.release(rank_);
    state_ = CommunicatorState::kAborted;
    return true;
  }

  CommunicatorState finalize() override {
    if (state_ == CommunicatorState::kActive) {
      state_ = CommunicatorState::kFinalizing;
      end_number_ = calls_++;
    }
    if (state_ != CommunicatorState::kFinalizing) return state_;
    if (table_.failed()) {
      abort({});
    } else if (table_.attempt(rank_, end_number_, Call{})) {
      state_ = CommunicatorState::kFinalized;
    }
    return state_;
  }

 private:
  void enqueue_equal(Stream& stream, Kind kind, const void* source, void* target, std::size_t count,
                     DType dtype, ReduceOp op) {
    check(count == 0 || (source != nullptr && target != nullptr), "a collective without memory");
    const std::vector<std::size_t> counts(static_cast<std::size_t>(size()), count);
    const GroupTensor tensor{.source = source, .target = target, .counts = counts};
    enqueue(
        stream,
        {.kind = kind, .dtype = dtype, .op = op, .count = count, .tensors = kept({&tensor, 1})});
  }

  void enqueue(Stream& stream, Call call) {
    HostStream& host_stream = as_host(stream);
    if (table_.failed()) return;
    check(state_ == CommunicatorState::kActive,
          "a collective was called after the end of its group");
    launching_.emplace(&host_stream,
                       [table = &table_, rank = rank_, number = calls_++, call = std::move(call)] {
                         return table->attempt(rank, number, call);
                       });
    is_launching();
  }

  Table& table_;
  const int rank_;
  Device& device_;
  CommunicatorState state_ = CommunicatorState::kActive;
  std::optional<std::pair<HostStream*, StreamTask>> launching_;  // the call that waits for others
  std::uint64_t calls_ = 0;
  std::uint64_t end_number_ = 0;
};

}  // namespace

HostCommunicatorHub::HostCommunicatorHub(std::vector<int> members) {
  check(!members.empty(), "a group has at least one rank");
  table_ = std::make_unique<Table>(std::move(members));
}

HostCommunicatorHub::~HostCommunicatorHub() = default;

int HostCommunicatorHub::size() const { return table_->size(); }
void HostCommunicatorHub::launch_together() { table_->launch_together(); }

std::unique_ptr<DeviceCommunicator> HostCommunicatorHub::group(int rank, Device& device) {
  table_->take(rank);
  return std::make_unique<HostCommunicator>(*table_, rank, device);
}

}  // namespace kolo
