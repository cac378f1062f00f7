#include "benchmarks/collective/kolo_system.h"

#include <fmt/format.h>

#include <cstring>
#include <thread>
#include <utility>

#include "benchmarks/collective/caller_memory.h"
#include "benchmarks/collective/device_caller_memory.h"
#include "benchmarks/collective/goal_choice.h"
#include "benchmarks/collective/sparse_rows.h"
#include "benchmarks/common/host_memory.h"
#include "comm/base/check.h"
#include "comm/device/device.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo::bench {
namespace {

GradientSet register_one(Runtime& runtime, const CollectiveCase& what, void* data) {
  // Sets of several cases exist at the same time.
  const std::string name = fmt::format("all_reduce {} {}", to_string(what.home),
                                       what.in_place ? "in place" : "out of place");
  return runtime.register_gradients(
      name,
      {{.name = fmt::format("{} bytes", what.bytes),
        .shape = {what.count()},
        .dtype = what.dtype,
        .data = data,
        .memory = memory_kind(what.home)}},
      {.op = what.op, .wire_dtype = what.wire, .compression = "none"});
}

/// By a call of its own, in `Memory`: the caller's, or memory that the runtime allocates.
template <typename Memory>
class CallRun final : public CollectiveRun {
 public:
  CallRun(Runtime& runtime, const CollectiveCase& what, std::string algorithm, Memory memory)
      : runtime_(runtime),
        what_(what),
        algorithm_(std::move(algorithm)),
        name_(fmt::format("{} {} {} bytes{}", to_string(what.verb), to_string(what.home),
                          what.bytes, what.in_place ? " in place" : "")),
        reduction_(what.op, {.before = what.op == ReduceOp::kPremulSum
                                           ? static_cast<double>(scale_of(runtime.rank()))
                                           : 1.0}),
        memory_(std::move(memory)),
        counts_(counts_of(what, runtime.rank(), runtime.world_size())) {}

  void write(const void* elements) override { memory_.write(elements); }
  void read(void* elements) override { memory_.read(elements); }
  void read_contribution(void* elements) override { memory_.read_contribution(elements); }
  void run() override {
    const bool is_root = runtime_.rank() == kRoot;
    const void* const in = what_.in_place ? nullptr : memory_.contribution();
    const BufferView all = view(memory_.result(), what_.count());
    const BufferView received = view(memory_.result(), counts_.received);
    switch (what_.verb) {
      case Verb::kAllReduce:
        return what_.in_place ? runtime_.all_reduce(name_, all, reduction_)
                              : runtime_.all_reduce(name_, in, all, reduction_);
      case Verb::kReduce:
        return runtime_.reduce(name_, in, all, kRoot, reduction_);
      case Verb::kReduceScatter:
        // In place, all parts are contributed.
        return runtime_.reduce_scatter(
            name_, in, what_.in_place ? view(memory_.contribution(), what_.count()) : received,
            reduction_);
      case Verb::kAllGather:
        return runtime_.all_gather(name_, in, all);
      case Verb::kGather:
        return runtime_.gather(
            name_,
            view(what_.in_place && is_root ? nullptr : memory_.contribution(), counts_.contributed),
            memory_.result(), kRoot);
      case Verb::kScatter:
        return runtime_.scatter(
            name_, memory_.contribution(),
            view(what_.in_place && is_root ? nullptr : memory_.result(), counts_.received), kRoot);
      case Verb::kAllToAll:
        return runtime_.all_to_all(name_, in, all);
      case Verb::kBroadcast:
        return what_.in_place ? runtime_.broadcast(name_, all, kRoot)
                              : runtime_.broadcast(name_, in, all, kRoot);
      case Verb::kSendRecv:
        return ping_pong(view(memory_.contribution(), what_.count()), all);
      case Verb::kSparseRows:
        break;  // By another run.
    }
  }
  std::string algorithm() const override { return algorithm_; }

 private:
  static constexpr int kRoot = 0;

  BufferView view(void* data, std::size_t count) const {
    return {data, count, what_.dtype, memory_kind(what_.home)};
  }

  /// The first of two partners sends, and then the other.
  void ping_pong(const BufferView& out, const BufferView& in) {
    const int rank = runtime_.rank();
    const int peer = partner(rank, runtime_.world_size());
    if (rank < peer) {
      runtime_.send(out, peer);
      runtime_.recv(in, peer);
    } else if (rank > peer) {
      runtime_.recv(in, peer);
      runtime_.send(out, peer);
    } else {
      ReceiveTicket received = runtime_.recv_async(in, peer);
      runtime_.send(out, peer);
      received.wait();
    }
  }

  Runtime& runtime_;
  const CollectiveCase what_;
  const std::string algorithm_;
  const std::string name_;
  const Reduction reduction_;
  Memory memory_;
  const CaseCounts counts_;
};

/// The algorithm of a call, or the option where only the runtime knows. Collective.
std::string algorithm_of(Runtime& runtime, const CollectiveCase& what) {
  const Options& options = runtime.options();
  if (what.verb == Verb::kSendRecv) return "ping-pong";
  const bool is_on_device = memory_kind(what.home) == MemoryKind::kDevice;
  if (what.verb == Verb::kAllReduce || is_on_device) return options.algorithm;
  return GoalChoice(runtime).taken(what, options);
}

std::unique_ptr<CollectiveRun> make_call_run(Runtime& runtime, const CollectiveCase& what) {
  std::string algorithm = algorithm_of(runtime, what);
  const CaseCounts counts = counts_of(what, runtime.rank(), runtime.world_size());
  if (memory_kind(what.home) == MemoryKind::kDevice) {
    ensure(runtime.device() != nullptr, "a case in device memory without a device");
    return std::make_unique<CallRun<DeviceCallerMemory>>(
        runtime, what, std::move(algorithm), DeviceCallerMemory(*runtime.device(), what, counts));
  }
  const auto allocate = [&](std::size_t bytes) { return runtime.allocate(bytes); };
  return std::make_unique<CallRun<CallerMemory>>(
      runtime, what, std::move(algorithm),
      in_arena(what.home) ? CallerMemory(what, counts, allocate) : CallerMemory(what, counts));
}

class HostRun final : public CollectiveRun {
 public:
  HostRun(Runtime& runtime, const CollectiveCase& what)
      : contribution_(what.in_place ? HostMemory() : HostMemory(what.bytes)),
        memory_(in_arena(what.home) ? HostMemory() : HostMemory(what.bytes)),
        gradients_(register_one(runtime, what, memory_.data())) {}

  void write(const void* elements) override {
    const BufferView sum = gradients_.view(0);
    std::memcpy(contribution_ ? contribution_.data() : sum.data, elements, sum.bytes());
  }
  void read(void* elements) override {
    const BufferView sum = gradients_.view(0);
    std::memcpy(elements, sum.data, sum.bytes());
  }
  void read_contribution(void* elements) override {
    const BufferView sum = gradients_.view(0);
    std::memcpy(elements, contribution_ ? contribution_.data() : sum.data, sum.bytes());
  }
  void run() override {
    if (contribution_) {
      const BufferView sum = gradients_.view(0);
      convert(sum.dtype, sum.data, sum.dtype, contribution_.data(), sum.count, 1.0);
    }
    gradients_.ready(0);
    gradients_.wait();
  }
  std::string algorithm() const override { return gradients_.plan().algorithm; }

 private:
  HostMemory contribution_;
  HostMemory memory_;
  GradientSet gradients_;
};

class DeviceRun final : public CollectiveRun {
 public:
  DeviceRun(Runtime& runtime, Device& device, const CollectiveCase& what)
      : stream_(device.make_stream()),
        written_(device.make_event()),
        staging_(device.allocate(what.bytes, MemoryKind::kPinned)),
        contribution_(what.in_place ? DeviceMemory()
                                    : device.allocate(what.bytes, MemoryKind::kDevice)),
        memory_(in_arena(what.home) ? DeviceMemory()
                                    : device.allocate(what.bytes, MemoryKind::kDevice)),
        gradients_(register_one(runtime, what, memory_.data())) {}

  void write(const void* elements) override {
    std::memcpy(staging_.data(), elements, staging_.bytes());
    stream_->copy(contribution(), view_of(staging_));
    finish();
  }
  void read(void* elements) override { fetch(elements, gradients_.view(0)); }
  void read_contribution(void* elements) override { fetch(elements, contribution()); }
  void run() override {
    if (contribution_) stream_->copy(gradients_.view(0), view_of(contribution_));
    gradients_.ready(0, {stream_->native()});
    gradients_.wait();
  }
  std::string algorithm() const override { return gradients_.plan().algorithm; }

 private:
  BufferView view_of(const DeviceMemory& memory) const {
    BufferView view = gradients_.view(0);
    view.data = memory.data();
    view.memory = memory.kind();
    return view;
  }
  BufferView contribution() const {
    return contribution_ ? view_of(contribution_) : gradients_.view(0);
  }
  void fetch(void* elements, const BufferView& source) {
    stream_->copy(view_of(staging_), source);
    finish();
    std::memcpy(elements, staging_.data(), staging_.bytes());
  }
  void finish() {
    stream_->record(*written_);
    while (!written_->done()) std::this_thread::yield();
  }

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> written_;
  DeviceMemory staging_;
  DeviceMemory contribution_;
  DeviceMemory memory_;
  GradientSet gradients_;
};

class KoloSystem final : public CollectiveSystem {
 public:
  explicit KoloSystem(Runtime& runtime) : runtime_(runtime) {}

  std::string name() const override { return "kolo"; }
  bool has_arena() const override { return true; }
  std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) override {
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    const bool is_call =
        what.home == Home::kUser && !what.wire && (!what.in_place || !fits_gradients(what));
    if (what.verb == Verb::kSparseRows) {
      runs.push_back(make_sparse_rows_run(runtime_, what));
    } else if (what.verb != Verb::kAllReduce || is_call) {
      runs.push_back(make_call_run(runtime_, what));
    } else if (memory_kind(what.home) == MemoryKind::kHost) {
      runs.push_back(std::make_unique<HostRun>(runtime_, what));
    } else {
      ensure(runtime_.device() != nullptr, "a case in device memory without a device");
      runs.push_back(std::make_unique<DeviceRun>(runtime_, *runtime_.device(), what));
    }
    return runs;
  }
  std::optional<std::uint64_t> wire_bytes() const override { return runtime_.network_bytes_sent(); }

 private:
  Runtime& runtime_;
};

}  // namespace

std::unique_ptr<CollectiveSystem> make_kolo_system(Runtime& runtime) {
  return std::make_unique<KoloSystem>(runtime);
}

}  // namespace kolo::bench
