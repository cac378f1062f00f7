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
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/collective/caller_memory.h"
#include "benchmarks/common/exchange.h"
#include "benchmarks/common/host_memory.h"
#include "benchmarks/peers/peers.h"
#include "comm/base/check.h"
#include "comm/base/visit_dtype.h"

namespace kolo::bench {
namespace {

/// Gloo's key-value store, implemented by Kolo's exchange. All ranks set the same number of keys
/// before they get keys of other ranks, so each `set` is collective and no `get` waits.
class ExchangeStore final : public gloo::rendezvous::Store {
 public:
  /// `name` must be new for every store.
  ExchangeStore(Runtime& runtime, std::string name) : runtime_(runtime), name_(std::move(name)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const std::string call_name = fmt::format("Gloo, {}, exchange {}", name_, ++exchanges_);
    const auto keys = all_gather(runtime_, call_name + ", keys", key);
    const auto values =
        all_gather(runtime_, call_name + ", values", std::string(data.begin(), data.end()));
    for (std::size_t rank = 0; rank < keys.size(); ++rank) values_[keys[rank]] = values[rank];
  }
  std::vector<char> get(const std::string& key) override {
    const auto found = values_.find(key);
    ensure(found != values_.end(), "Gloo gets a key that no rank has set: " + key);
    return {found->second.begin(), found->second.end()};
  }
  void wait(const std::vector<std::string>&) override {}

 private:
  Runtime& runtime_;
  std::string name_;
  int exchanges_ = 0;
  std::map<std::string, std::string> values_;
};

std::shared_ptr<gloo::transport::Device> open_device(const Runtime& runtime) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = network_address(runtime);
  return gloo::transport::tcp::CreateDevice(attributes);
}

/// Gloo's connections among all ranks. Each name has separate connections: when Gloo's functions
/// and its older classes shared connections, 4 ranks hung inside Gloo at 16 MiB and more.
class GlooContexts {
 public:
  /// `runtime` outlives this object, because ranks exchange addresses through it. Errors: the
  /// errors of `network_address`.
  explicit GlooContexts(Runtime& runtime) : runtime_(runtime), device_(open_device(runtime)) {}

  /// Returns the connections for `name`. The first call with a name is collective.
  std::shared_ptr<gloo::Context> of(const std::string& name) {
    std::shared_ptr<gloo::Context>& found = contexts_[name];
    if (found != nullptr) return found;
    auto context =
        std::make_shared<gloo::rendezvous::Context>(runtime_.rank(), runtime_.world_size());
    // The timeout allows for slow links: 64 MiB between 4 nodes at 100 Mbit/s take 8 s.
    context->setTimeout(std::chrono::minutes(1));
    ExchangeStore store(runtime_, name);
    context->connectFullMesh(store, device_);
    return found = std::move(context);
  }

 private:
  Runtime& runtime_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::map<std::string, std::shared_ptr<gloo::Context>> contexts_;  // by name
};

/// Returns the value for `op`.
template <typename Value>
Value of_op(ReduceOp op, Value sum, Value min, Value max, Value product) {
  return op == ReduceOp::kMin    ? min
         : op == ReduceOp::kMax  ? max
         : op == ReduceOp::kProd ? product
                                 : sum;
}

template <typename T>
const gloo::ReductionFunction<T>* reduction(ReduceOp op) {
  using Of = gloo::ReductionFunction<T>;
  return of_op<const Of*>(op, Of::sum, Of::min, Of::max, Of::product);
}

template <typename T>
auto function(ReduceOp op) {
  using Function = void (*)(void*, const void*, const void*, std::size_t);
  return of_op<Function>(op, &gloo::sum<T>, &gloo::min<T>, &gloo::max<T>, &gloo::product<T>);
}

/// Gloo's function for a collective. As in PyTorch, each call creates the options, including the
/// buffers. `T` is the element type; it is bytes if elements are only moved.
template <typename T>
class FunctionRun final : public MemoryRun {
 public:
  /// `tags` is the tag of the next call, and must outlive this object. Each call has a separate
  /// tag, because a rank may begin a call while another rank is still in the previous one. All
  /// ranks make the same calls in the same order.
  FunctionRun(const std::shared_ptr<gloo::Context>& context, std::uint32_t& tags,
              const CollectiveCase& what, std::string name,
              gloo::AllreduceOptions::Algorithm of_all_reduce = {})
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
        break;  // handled by another run
    }
  }

 private:
  static constexpr int kRoot = 0;

  FunctionRun(const std::shared_ptr<gloo::Context>& context, std::uint32_t& tags,
              const CollectiveCase& what, std::string name,
              gloo::AllreduceOptions::Algorithm of_all_reduce, const CaseCounts& counts)
      : MemoryRun(CallerMemory(what, counts),
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

  /// Returns whether the call has an input. Gloo's gather takes the root's part from the input even
  /// in place; in a broadcast only the root has an input.
  bool has_input() const {
    if (what_.verb == Verb::kGather) return true;
    return !memory_.in_place() && (what_.verb != Verb::kBroadcast || context_->rank == kRoot);
  }
  T* in() const { return static_cast<T*>(memory_.contribution()); }
  /// Returns the output. Gloo's reduce writes partial sums to the output of every rank.
  T* out() const {
    return scratch_ ? reinterpret_cast<T*>(scratch_.data()) : static_cast<T*>(memory_.result());
  }
  std::size_t out_count() const { return what_.verb == Verb::kReduce ? contributed_ : received_; }

  template <typename Options>
  Options filled() const {
    Options options(context_);
    options.setTag(tags_++);
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

  /// Returns the addresses of all ranks' parts in the root's contribution.
  std::vector<T*> parts() const {
    std::vector<T*> all;
    for (std::size_t at = 0; at < contributed_; at += received_) all.push_back(in() + at);
    return all;
  }

  /// Sends a message to the partner and back. The lower rank sends first. A rank that is its own
  /// partner copies the message.
  void ping_pong() {
    const int peer = partner(context_->rank, context_->size);
    if (peer == context_->rank) {
      std::memcpy(out(), in(), contributed_ * sizeof(T));
      return;
    }
    const std::uint32_t there = tags_++, back = tags_++;
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
  std::uint32_t& tags_;
  CollectiveCase what_;
  gloo::AllreduceOptions::Algorithm of_all_reduce_;
  std::size_t contributed_, received_;  // in elements of T
  HostMemory scratch_;
  HostMemory copy_;  ///< Contribution to an all-to-all in place, which Gloo does not support.
};

/// A run of one of Gloo's older classes. They work in place, in a buffer for the parts of all
/// ranks, and write the result to the beginning of the buffer.
class ClassRun final : public MemoryRun {
 public:
  using Make = std::function<std::unique_ptr<gloo::Algorithm>(void*)>;

  ClassRun(const gloo::Context& context, const CollectiveCase& what, std::string name,
           const Make& make)
      : MemoryRun(memory_for(what, counts_of(what, context.rank, context.size)), std::move(name)),
        made_(make(memory_.result())) {}

  void run() override {
    memory_.copy_contribution();
    made_->run();
  }

 private:
  static CallerMemory memory_for(const CollectiveCase& what, CaseCounts counts) {
    counts.received_at = 0;
    return {what, counts, host_place(), what.bytes};
  }

  std::unique_ptr<gloo::Algorithm> made_;
};

/// A run without elements. It does nothing, because Gloo would report an error.
class EmptyRun final : public MemoryRun {
 public:
  explicit EmptyRun(const CollectiveCase& what) : MemoryRun(CallerMemory(what, {}), "none") {}
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
      refuse("gloo", what);
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
          refuse("gloo", what);
        }
      });
    }
    return runs;
  }

 private:
  using Runs = std::vector<std::unique_ptr<CollectiveRun>>;

  /// Returns the connections of one algorithm.
  std::shared_ptr<gloo::Context> connections(const CollectiveCase& what, const char* way) {
    return contexts_.of(fmt::format("{}, {}", to_string(what.verb), way));
  }

  template <typename T>
  void add_function(const CollectiveCase& what, const char* way, Runs& runs,
                    gloo::AllreduceOptions::Algorithm of_all_reduce = {}) {
    runs.push_back(
        std::make_unique<FunctionRun<T>>(connections(what, way), tags_, what, way, of_all_reduce));
  }

  /// Adds a run of one of Gloo's older classes. `arguments` go to its constructor.
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
  std::uint32_t tags_ = 0;
  GlooContexts contexts_;
};

}  // namespace

std::unique_ptr<CollectiveSystem> make_gloo_system(Runtime& runtime) {
  return std::make_unique<GlooSystem>(runtime);
}

}  // namespace kolo::bench
