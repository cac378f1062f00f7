#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/collective/caller_memory.h"
#include "benchmarks/common/exchange.h"
#include "benchmarks/peers/network_address.h"
#include "benchmarks/peers/peer_systems.h"
#include "comm/base/check.h"
#include "comm/base/visit_dtype.h"

namespace kolo::bench {
namespace {

/// Gloo's key-value store on Kolo's exchange. All ranks set equally many keys before they get those
/// of the others, so each `set` is collective and no `get` has to wait.
class ExchangeStore final : public gloo::rendezvous::Store {
 public:
  /// `name` is new for every store.
  ExchangeStore(Runtime& runtime, std::string name) : runtime_(runtime), name_(std::move(name)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const std::string topic = fmt::format("Gloo, {}, exchange {}", name_, ++exchanges_);
    const auto keys = all_gather(runtime_, topic + ", keys", key);
    const auto values =
        all_gather(runtime_, topic + ", values", std::string(data.begin(), data.end()));
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

/// Each variant has its own connections: when Gloo's function and its older classes shared
/// connections, 4 ranks hung inside Gloo at 16 MiB and more.
std::shared_ptr<gloo::Context> connect(Runtime& runtime,
                                       std::shared_ptr<gloo::transport::Device> device,
                                       const std::string& way) {
  auto context = std::make_shared<gloo::rendezvous::Context>(runtime.rank(), runtime.world_size());
  // Links may be slow: 64 MiB between 4 nodes at 100 Mbit/s take 8 s.
  context->setTimeout(std::chrono::minutes(1));
  ExchangeStore store(runtime, way);
  context->connectFullMesh(store, device);
  return context;
}

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

template <typename T>
gloo::AllreduceOptions::Func function(ReduceOp op) {
  using Function = void (*)(void*, const void*, const void*, std::size_t);
  switch (op) {
    case ReduceOp::kMin:
      return static_cast<Function>(&gloo::min<T>);
    case ReduceOp::kMax:
      return static_cast<Function>(&gloo::max<T>);
    case ReduceOp::kProd:
      return static_cast<Function>(&gloo::product<T>);
    default:
      break;
  }
  return static_cast<Function>(&gloo::sum<T>);
}

class GlooRun : public CollectiveRun {
 public:
  GlooRun(const CollectiveCase& what, std::string algorithm)
      : memory_(what, {.contributed = what.count(), .received = what.count()}),
        algorithm_(std::move(algorithm)) {}

  void write(const void* elements) override { memory_.write(elements); }
  void read(void* elements) override { memory_.read(elements); }
  void read_contribution(void* elements) override { memory_.read_contribution(elements); }
  std::string algorithm() const override { return algorithm_; }

 protected:
  CallerMemory memory_;

 private:
  std::string algorithm_;
};

/// Tags for calls of Gloo's function. A rank may begin a call while another is still in the
/// previous one, so each call has its own tag; all ranks make the same calls in the same order.
class Tags {
 public:
  std::uint32_t next() { return next_++; }

 private:
  std::uint32_t next_ = 0;
};

/// Gloo's function `allreduce`, called as PyTorch calls it: options, and so buffers, are made for
/// each call.
class FunctionRun final : public GlooRun {
 public:
  template <typename T>
  FunctionRun(std::type_identity<T>, std::shared_ptr<gloo::Context> context, Tags& tags,
              const CollectiveCase& what, std::string name,
              gloo::AllreduceOptions::Algorithm algorithm)
      : GlooRun(what, std::move(name)),
        make_options_([this, context = std::move(context), &tags, algorithm, what] {
          gloo::AllreduceOptions options(context);
          options.setAlgorithm(algorithm);
          options.setReduceFunction(function<T>(what.op));
          options.setTag(tags.next());
          if (!memory_.in_place()) {
            options.setInput(static_cast<T*>(memory_.contribution()), what.count());
          }
          options.setOutput(static_cast<T*>(memory_.result()), what.count());
          return options;
        }) {}

  void run() override { gloo::allreduce(make_options_()); }

 private:
  std::function<gloo::AllreduceOptions()> make_options_;
};

/// One of Gloo's older classes, which work in place.
class ClassRun final : public GlooRun {
 public:
  using Make = std::function<std::unique_ptr<gloo::Algorithm>(void*)>;

  ClassRun(const CollectiveCase& what, std::string name, const Make& make)
      : GlooRun(what, std::move(name)), made_(make(memory_.result())) {}

  void run() override {
    memory_.copy_contribution();
    made_->run();
  }

 private:
  std::unique_ptr<gloo::Algorithm> made_;
};

/// No elements: nothing to do, which Gloo would treat as a mistake.
class EmptyRun final : public GlooRun {
 public:
  explicit EmptyRun(const CollectiveCase& what) : GlooRun(what, "none") {}
  void run() override {}
};

class GlooSystem final : public CollectiveSystem {
 public:
  explicit GlooSystem(Runtime& runtime) {
    const auto device = open_device(runtime);
    for (const char* way : {"ring", "bcube", "ring_chunked", "halving_doubling"}) {
      contexts_[way] = connect(runtime, device, way);
    }
  }

  std::string name() const override { return "gloo"; }

  std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) override {
    check(what.home == Home::kUser, "Gloo is measured in host memory; leave gloo out");
    if (!is_number(what.dtype) || !is_number_op(what.op) || what.op == ReduceOp::kAverage) {
      refuse_gloo(what);
    }
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    if (what.count() == 0) {
      runs.push_back(std::make_unique<EmptyRun>(what));
      return runs;
    }
    visit_dtype(what.dtype, [&]<typename T>(std::type_identity<T> type) {
      if constexpr (std::is_arithmetic_v<T>) {
        add_runs(type, what, runs);
      } else {
        refuse_gloo(what);
      }
    });
    return runs;
  }

 private:
  template <typename T>
  void add_runs(std::type_identity<T> type, const CollectiveCase& what,
                std::vector<std::unique_ptr<CollectiveRun>>& runs) {
    using Options = gloo::AllreduceOptions::Algorithm;
    const int count = narrow<int>(what.count());
    for (const auto& [way, number] :
         {std::pair("ring", Options::RING), {"bcube", Options::BCUBE}}) {
      runs.push_back(
          std::make_unique<FunctionRun>(type, contexts_.at(way), tags_, what, way, number));
    }
    runs.push_back(std::make_unique<ClassRun>(what, "ring_chunked", [&](void* data) {
      return std::make_unique<gloo::AllreduceRingChunked<T>>(contexts_.at("ring_chunked"),
                                                             std::vector{static_cast<T*>(data)},
                                                             count, reduction<T>(what.op));
    }));
    runs.push_back(std::make_unique<ClassRun>(what, "halving_doubling", [&](void* data) {
      return std::make_unique<gloo::AllreduceHalvingDoubling<T>>(contexts_.at("halving_doubling"),
                                                                 std::vector{static_cast<T*>(data)},
                                                                 count, reduction<T>(what.op));
    }));
  }

  Tags tags_;
  std::map<std::string, std::shared_ptr<gloo::Context>> contexts_;  // By variant; Gloo shares them.
};

}  // namespace

std::unique_ptr<CollectiveSystem> make_gloo_system(Runtime& runtime) {
  return std::make_unique<GlooSystem>(runtime);
}

}  // namespace kolo::bench
