#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/scatter.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/collective/caller_memory.h"
#include "benchmarks/common/host_memory.h"
#include "benchmarks/peers/gloo_contexts.h"
#include "benchmarks/peers/peer_systems.h"
#include "comm/base/check.h"
#include "comm/base/visit_dtype.h"

namespace kolo::bench {
namespace {

[[noreturn]] void refuse_gloo(const CollectiveCase& what) {
  throw KoloError({.code = ErrorCode::kConfig,
                   .what = fmt::format("Gloo is not compared for {} of {}; leave gloo out",
                                       to_string(what.op), to_string(what.dtype))});
}

template <typename T>
const gloo::ReductionFunction<T>* reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return gloo::ReductionFunction<T>::min;
    case ReduceOp::kMax:
      return gloo::ReductionFunction<T>::max;
    case ReduceOp::kProd:
      return gloo::ReductionFunction<T>::product;
    default:
      break;
  }
  return gloo::ReductionFunction<T>::sum;
}

using Function = void (*)(void*, const void*, const void*, std::size_t);

template <typename T>
Function function(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return &gloo::min<T>;
    case ReduceOp::kMax:
      return &gloo::max<T>;
    case ReduceOp::kProd:
      return &gloo::product<T>;
    default:
      break;
  }
  return &gloo::sum<T>;
}

class GlooRun : public CollectiveRun {
 public:
  GlooRun(CallerMemory memory, std::string algorithm)
      : memory_(std::move(memory)), algorithm_(std::move(algorithm)) {}

  void write(const void* elements) override { memory_.write(elements); }
  void read(void* elements) override { memory_.read(elements); }
  void read_contribution(void* elements) override { memory_.read_contribution(elements); }
  std::string algorithm() const override { return algorithm_; }

 protected:
  CallerMemory memory_;

 private:
  std::string algorithm_;
};

/// Tags for calls of Gloo's functions. A rank may begin a call while another is still in the
/// previous one, so each call has its own tag; all ranks make the same calls in the same order.
class Tags {
 public:
  std::uint32_t next() { return next_++; }

 private:
  std::uint32_t next_ = 0;
};

/// Gloo's function for a collective, called as PyTorch calls it: options, and so buffers, are made
/// for each call. `T` is the type of what it counts: bytes, where it only moves elements.
template <typename T>
class FunctionRun final : public GlooRun {
 public:
  /// `tags` outlive it.
  FunctionRun(const std::shared_ptr<gloo::Context>& context, Tags& tags, const CollectiveCase& what,
              std::string name, gloo::AllreduceOptions::Algorithm of_all_reduce = {})
      : FunctionRun(context, tags, what, std::move(name), of_all_reduce,
                    counts_of(what, context->rank, context->size)) {}

  void run() override {
    switch (what_.verb) {
      case Verb::kAllReduce:
      case Verb::kSparseRows: {
        auto options = filled<gloo::AllreduceOptions>();
        options.setAlgorithm(of_all_reduce_);
        return gloo::allreduce(options);
      }
      case Verb::kReduce:
        return call(gloo::reduce);
      case Verb::kAllGather:
        return call(gloo::allgather);
      case Verb::kGather:
        return call(gloo::gather);
      case Verb::kScatter: {
        auto options = filled<gloo::ScatterOptions>();
        if (context_->rank == kRoot) options.setInputs(parts(), received_);
        return gloo::scatter(options);
      }
      case Verb::kAllToAll:
        if (copy_) std::memcpy(copy_.data(), in(), memory_.contribution_bytes());
        return call(gloo::alltoall);
      case Verb::kBroadcast:
        return call(gloo::broadcast);
      case Verb::kSendRecv:
        return ping_pong();
      case Verb::kReduceScatter:
        break;  // By another run.
    }
  }

 private:
  static constexpr int kRoot = 0;

  FunctionRun(const std::shared_ptr<gloo::Context>& context, Tags& tags, const CollectiveCase& what,
              std::string name, gloo::AllreduceOptions::Algorithm of_all_reduce,
              const CaseCounts& counts)
      : GlooRun(CallerMemory(what, counts),
                what.verb == Verb::kAllToAll && what.in_place ? name + ", copied" : name),
        context_(context),
        tags_(tags),
        what_(what),
        of_all_reduce_(of_all_reduce),
        contributed_(counts.contributed * size_of(what.dtype) / sizeof(T)),
        received_(counts.received * size_of(what.dtype) / sizeof(T)),
        scratch_(what.verb == Verb::kReduce && memory_.result() == nullptr ? HostMemory(what.bytes)
                                                                           : HostMemory()),
        copy_(what.verb == Verb::kAllToAll && what.in_place
                  ? HostMemory(memory_.contribution_bytes())
                  : HostMemory()) {}

  /// Gloo gathers in place from the root's own part; only the root of a broadcast has an input.
  bool has_input() const {
    if (what_.verb == Verb::kGather) return true;
    return !memory_.in_place() && (what_.verb != Verb::kBroadcast || context_->rank == kRoot);
  }
  T* in() const { return static_cast<T*>(memory_.contribution()); }
  /// Gloo's reduce needs memory for partial sums on all ranks.
  T* out() const {
    return scratch_ ? reinterpret_cast<T*>(scratch_.data()) : static_cast<T*>(memory_.result());
  }
  std::size_t out_count() const { return what_.verb == Verb::kReduce ? contributed_ : received_; }

  template <typename Options>
  Options filled() const {
    Options options(context_);
    options.setTag(tags_.next());
    if constexpr (requires { options.setRoot(kRoot); }) options.setRoot(kRoot);
    if constexpr (requires { options.setReduceFunction(function<T>(what_.op)); }) {
      options.setReduceFunction(function<T>(what_.op));
    }
    if constexpr (requires { options.setInput(in(), contributed_); }) {
      if (copy_) {
        options.setInput(reinterpret_cast<T*>(copy_.data()), contributed_);
      } else if (has_input()) {
        options.setInput(in(), contributed_);
      }
    }
    if (out() != nullptr) options.setOutput(out(), out_count());
    return options;
  }

  template <typename Options>
  void call(void (*function_of_gloo)(Options&)) const {
    auto options = filled<Options>();
    function_of_gloo(options);
  }

  /// The parts of all ranks in the root's contribution.
  std::vector<T*> parts() const {
    std::vector<T*> all;
    for (std::size_t at = 0; at < contributed_; at += received_) all.push_back(in() + at);
    return all;
  }

  /// The first of two partners sends, and then the other. No rank is connected with itself.
  void ping_pong() {
    const int peer = partner(context_->rank, context_->size);
    if (peer == context_->rank) {
      std::memcpy(out(), in(), contributed_ * sizeof(T));
      return;
    }
    const std::uint32_t there = tags_.next(), back = tags_.next();
    const bool is_first = context_->rank < peer;
    const auto send = [&] {
      const auto buffer = context_->createUnboundBuffer(in(), contributed_ * sizeof(T));
      buffer->send(peer, is_first ? there : back);
      buffer->waitSend();
    };
    if (is_first) send();
    const auto buffer = context_->createUnboundBuffer(out(), received_ * sizeof(T));
    buffer->recv(peer, is_first ? back : there);
    buffer->waitRecv();
    if (!is_first) send();
  }

  std::shared_ptr<gloo::Context> context_;
  Tags& tags_;
  CollectiveCase what_;
  gloo::AllreduceOptions::Algorithm of_all_reduce_;
  std::size_t contributed_, received_;  // of T
  HostMemory scratch_;
  HostMemory copy_;  ///< Copy of the contribution to an all-to-all in place, which Gloo lacks.
};

/// One of Gloo's older classes, which work in place in a buffer for the parts of all ranks, and put
/// the result at its beginning.
class ClassRun final : public GlooRun {
 public:
  using Make = std::function<std::unique_ptr<gloo::Algorithm>(void*)>;

  ClassRun(const gloo::Context& context, const CollectiveCase& what, std::string name,
           const Make& make)
      : GlooRun(memory_for(what, counts_of(what, context.rank, context.size)), std::move(name)),
        made_(make(memory_.result())) {}

  void run() override {
    memory_.copy_contribution();
    made_->run();
  }

 private:
  static CallerMemory memory_for(const CollectiveCase& what, CaseCounts counts) {
    counts.received_at = 0;
    return {what, counts, [&](std::size_t bytes) {
              return CallerMemory::host_memory(std::max(bytes, what.bytes));
            }};
  }

  std::unique_ptr<gloo::Algorithm> made_;
};

/// No elements: nothing to do, which Gloo would treat as a mistake.
class EmptyRun final : public GlooRun {
 public:
  explicit EmptyRun(const CollectiveCase& what) : GlooRun(CallerMemory(what, {}), "none") {}
  void run() override {}
};

class GlooSystem final : public CollectiveSystem {
 public:
  explicit GlooSystem(Runtime& runtime) : ranks_(runtime.world_size()), contexts_(runtime) {}

  std::string name() const override { return "gloo"; }

  std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) override {
    check(what.home == Home::kUser, "Gloo is measured in host memory; leave gloo out");
    if (reduces(what.verb) &&
        (!is_number(what.dtype) || !is_number_op(what.op) || what.op == ReduceOp::kAverage)) {
      refuse_gloo(what);
    }
    Runs runs;
    if (what.count() == 0) {
      runs.push_back(std::make_unique<EmptyRun>(what));
    } else if (!reduces(what.verb)) {
      add_function<std::uint8_t>(what, "default", runs);
    } else {
      visit_dtype(what.dtype, [&]<typename T>(std::type_identity<T>) {
        if constexpr (std::is_arithmetic_v<T>) {
          add_reductions<T>(what, runs);
        } else {
          refuse_gloo(what);
        }
      });
    }
    return runs;
  }

 private:
  using Runs = std::vector<std::unique_ptr<CollectiveRun>>;

  /// The connections of one algorithm.
  std::shared_ptr<gloo::Context> connections(const CollectiveCase& what, const char* way) {
    return contexts_.of(fmt::format("{}, {}", to_string(what.verb), way));
  }

  template <typename T>
  void add_function(const CollectiveCase& what, const char* way, Runs& runs,
                    gloo::AllreduceOptions::Algorithm of_all_reduce = {}) {
    runs.push_back(
        std::make_unique<FunctionRun<T>>(connections(what, way), tags_, what, way, of_all_reduce));
  }

  /// `Class` is one of Gloo's older classes; its constructor takes `arguments` in the middle.
  template <template <typename> typename Class, typename T, typename... Arguments>
  void add_class(const CollectiveCase& what, const char* way, Runs& runs,
                 const Arguments&... arguments) {
    const auto context = connections(what, way);
    runs.push_back(std::make_unique<ClassRun>(*context, what, way, [&](void* data) {
      return std::make_unique<Class<T>>(context, std::vector{static_cast<T*>(data)},
                                        narrow<int>(what.count()), arguments...,
                                        reduction<T>(what.op));
    }));
  }

  template <typename T>
  void add_reductions(const CollectiveCase& what, Runs& runs) {
    if (what.verb == Verb::kReduce) {
      add_function<T>(what, "ring", runs);
    } else if (what.verb == Verb::kReduceScatter) {
      const std::vector<int> parts(static_cast<std::size_t>(ranks_),
                                   narrow<int>(what.part(ranks_)));
      add_class<gloo::ReduceScatterHalvingDoubling, T>(what, "halving_doubling", runs, parts);
    } else {
      add_function<T>(what, "ring", runs, gloo::AllreduceOptions::Algorithm::RING);
      add_function<T>(what, "bcube", runs, gloo::AllreduceOptions::Algorithm::BCUBE);
      add_class<gloo::AllreduceRingChunked, T>(what, "ring_chunked", runs);
      add_class<gloo::AllreduceHalvingDoubling, T>(what, "halving_doubling", runs);
    }
  }

  int ranks_;
  Tags tags_;
  GlooContexts contexts_;
};

}  // namespace

std::unique_ptr<CollectiveSystem> make_gloo_system(Runtime& runtime) {
  return std::make_unique<GlooSystem>(runtime);
}

}  // namespace kolo::bench
