#include "benchmarks/collective/collective_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "benchmarks/collective/algorithm_choice.h"
#include "benchmarks/collective/caller_memory.h"
#include "benchmarks/collective/sparse_rows.h"
#include "comm/base/check.h"

namespace kolo::bench {
namespace {

GradientSet register_one(Runtime& runtime, const CollectiveCase& what, void* data) {
  // Gradient sets of several cases exist at the same time, so their names differ.
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

/// A run that makes a direct call.
class CallRun final : public MemoryRun {
 public:
  CallRun(Runtime& runtime, const CollectiveCase& what, std::string algorithm)
      : MemoryRun({what, counts_of(what, runtime.rank(), runtime.world_size()),
                   place_of(runtime, what.home)},
                  std::move(algorithm)),
        runtime_(runtime),
        what_(what),
        name_(fmt::format("{} {} {} bytes{}", to_string(what.verb), to_string(what.home),
                          what.bytes, what.in_place ? " in place" : "")),
        reduction_(what.op, {.before = what.op == ReduceOp::kPremulSum
                                           ? static_cast<double>(scale_of(runtime.rank()))
                                           : 1.0}),
        counts_(counts_of(what, runtime.rank(), runtime.world_size())) {}

  void run() override {
    const bool is_root = runtime_.rank() == kRoot;
    const BufferView in = view(memory_.contribution(), counts_.contributed);
    const BufferView out = view(memory_.result(), counts_.received);
    const BufferView all = view(memory_.result(), what_.count());
    switch (what_.verb) {
      case Verb::kAllReduce:
        return runtime_.all_reduce(name_, placed(in, all, all), reduction_).wait();
      case Verb::kReduce:
        return runtime_.reduce(name_, placed(in, all, all), kRoot, reduction_).wait();
      case Verb::kReduceScatter:
        // In place, each rank contributes its whole buffer.
        return runtime_.reduce_scatter(name_, placed(in, out, in), reduction_).wait();
      case Verb::kAllGather:
        return runtime_.all_gather(name_, placed(in, all, all)).wait();
      case Verb::kGather:
        return runtime_.gather(name_, is_root ? placed(in, all, all) : Tensors(in), kRoot).wait();
      case Verb::kScatter: {
        const BufferView parts = view(memory_.contribution(), what_.count());
        return runtime_.scatter(name_, is_root ? placed(parts, out, parts) : Tensors(out), kRoot)
            .wait();
      }
      case Verb::kAllToAll:
        return runtime_.all_to_all(name_, placed(view(memory_.contribution(), all.count), all, all))
            .wait();
      case Verb::kBroadcast:
        return runtime_.broadcast(name_, placed(view(in.data, all.count), all, all), kRoot).wait();
      case Verb::kSendRecv:
        return ping_pong(view(memory_.contribution(), what_.count()), all);
      case Verb::kSparseRows:
        break;  // handled by another run
    }
  }

 private:
  static constexpr int kRoot = 0;

  BufferView view(void* data, std::size_t count) const {
    return {data, count, what_.dtype, memory_kind(what_.home)};
  }

  /// Returns the tensors of the call: `in` and `out`, or `in_place` if the case is in place.
  Tensors placed(const BufferView& in, const BufferView& out, const BufferView& in_place) const {
    return what_.in_place ? Tensors(in_place) : Tensors(in, out);
  }

  /// Sends a message to the partner and back. The lower rank sends first.
  void ping_pong(const BufferView& out, const BufferView& in) {
    const int rank = runtime_.rank();
    const int peer = partner(rank, runtime_.world_size());
    if (rank < peer) {
      runtime_.send(out, peer).wait();
      runtime_.recv(in, peer).wait();
    } else if (rank > peer) {
      runtime_.recv(in, peer).wait();
      runtime_.send(out, peer).wait();
    } else {
      Ticket received = runtime_.recv(in, peer);
      runtime_.send(out, peer).wait();
      received.wait();
    }
  }

  Runtime& runtime_;
  const CollectiveCase what_;
  const std::string name_;
  const Reduction reduction_;
  const CaseCounts counts_;
};

/// Returns the algorithm of a call, or the option's value if only the runtime knows it. Collective.
std::string algorithm_of(Runtime& runtime, const CollectiveCase& what) {
  const Options& options = runtime.options();
  if (what.verb == Verb::kSendRecv) return "ping-pong";
  const bool is_on_device = memory_kind(what.home) == MemoryKind::kDevice;
  if (is_on_device) return options.algorithm;
  return AlgorithmChoice(runtime).taken(what, options);
}

/// A run of a gradient set with one gradient, in the arena or in the caller's memory.
class GradientRun final : public CollectiveRun {
 public:
  GradientRun(Runtime& runtime, const CollectiveCase& what)
      : place_(memory_kind(what.home) == MemoryKind::kHost ? host_place()
                                                           : place_of(runtime, what.home)),
        contribution_(what.in_place ? nullptr : allocate(what)),
        memory_(in_arena(what.home) ? nullptr : allocate(what)),
        gradients_(register_one(runtime, what, memory_.get())) {}

  void write(const void* elements) override { place_->put(contribution(), elements, bytes()); }
  void read(void* elements) override { place_->get(elements, sum(), bytes()); }
  void read_contribution(void* elements) override {
    place_->get(elements, contribution(), bytes());
  }
  void run() override {
    if (contribution_ != nullptr) place_->copy(sum(), contribution_.get(), bytes());
    if (const auto stream = place_->stream()) {
      gradients_.ready(0, *stream);
    } else {
      gradients_.ready(0);
    }
    gradients_.wait();
  }
  std::string algorithm() const override { return gradients_.plan().algorithm; }

 private:
  std::shared_ptr<void> allocate(const CollectiveCase& what) {
    return place_->allocate(std::max<std::size_t>(what.bytes, 1));
  }
  void* sum() const { return gradients_.view(0).data; }
  void* contribution() const { return contribution_ != nullptr ? contribution_.get() : sum(); }
  std::size_t bytes() const { return gradients_.view(0).bytes(); }

  std::shared_ptr<Place> place_;
  std::shared_ptr<void> contribution_;  ///< Null in place.
  std::shared_ptr<void> memory_;        ///< The caller's memory; null for a gradient in the arena.
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
      runs.push_back(std::make_unique<CallRun>(runtime_, what, algorithm_of(runtime_, what)));
    } else {
      runs.push_back(std::make_unique<GradientRun>(runtime_, what));
    }
    return runs;
  }
  Runtime* runtime() override { return &runtime_; }
  std::optional<std::uint64_t> wire_bytes() const override { return runtime_.network_bytes_sent(); }

 private:
  Runtime& runtime_;
};

}  // namespace

std::unique_ptr<CollectiveSystem> make_kolo_system(Runtime& runtime) {
  return std::make_unique<KoloSystem>(runtime);
}

}  // namespace kolo::bench
