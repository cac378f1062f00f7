#include "benchmarks/gloo_system.h"

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <functional>
#include <map>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/caller_memory.h"
#include "benchmarks/exchange.h"
#include "benchmarks/network_address.h"
#include "comm/base/check.h"
#include "comm/base/visit_dtype.h"

namespace kolo::bench {
namespace {

/// Gloo's key-value store on Kolo's exchange. All ranks set equally many keys before they get those
/// of the others, so each `set` is collective and no `get` has to wait.
class ExchangeStore final : public gloo::rendezvous::Store {
 public:
  explicit ExchangeStore(Runtime& runtime) : runtime_(runtime) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const std::string topic = fmt::format("Gloo, exchange {}", ++exchanges_);
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
  int exchanges_ = 0;
  std::map<std::string, std::string> values_;
};

std::shared_ptr<gloo::Context> connect(Runtime& runtime) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = network_address(runtime);
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(runtime.rank(), runtime.world_size());
  // Links may be slow: 64 MiB at 100 Mbit/s take 5 s and more.
  context->setTimeout(std::chrono::minutes(5));
  ExchangeStore store(runtime);
  context->connectFullMesh(store, device);
  return context;
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
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
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
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      break;
  }
  return static_cast<Function>(&gloo::sum<T>);
}

class GlooRun : public AllReduceRun {
 public:
  GlooRun(const AllReduceCase& what, std::string algorithm)
      : memory_(what), algorithm_(std::move(algorithm)) {}

  void write(const void* elements) override { memory_.write(elements); }
  void read(void* elements) override { memory_.read(elements); }
  std::string algorithm() const override { return algorithm_; }

 protected:
  CallerMemory memory_;

 private:
  std::string algorithm_;
};

/// Gloo's function `allreduce`, which PyTorch calls.
class FunctionRun final : public GlooRun {
 public:
  template <typename T>
  FunctionRun(std::type_identity<T>, const std::shared_ptr<gloo::Context>& context,
              const AllReduceCase& what, std::string name,
              gloo::AllreduceOptions::Algorithm algorithm)
      : GlooRun(what, std::move(name)), options_(context) {
    options_.setAlgorithm(algorithm);
    options_.setReduceFunction(function<T>(what.op));
    if (!memory_.in_place()) {
      options_.setInput(static_cast<T*>(memory_.contribution()), what.count());
    }
    options_.setOutput(static_cast<T*>(memory_.sum()), what.count());
  }

  void run() override { gloo::allreduce(options_); }

 private:
  gloo::AllreduceOptions options_;
};

/// One of Gloo's older classes, which work in place.
class ClassRun final : public GlooRun {
 public:
  using Make = std::function<std::unique_ptr<gloo::Algorithm>(void*)>;

  ClassRun(const AllReduceCase& what, std::string name, const Make& make)
      : GlooRun(what, std::move(name)), made_(make(memory_.sum())) {}

  void run() override {
    memory_.copy_contribution();
    made_->run();
  }

 private:
  std::unique_ptr<gloo::Algorithm> made_;
};

/// No element: nothing to do, which Gloo takes for a mistake.
class EmptyRun final : public GlooRun {
 public:
  explicit EmptyRun(const AllReduceCase& what) : GlooRun(what, "none") {}
  void run() override {}
};

class GlooSystem final : public AllReduceSystem {
 public:
  explicit GlooSystem(Runtime& runtime) : context_(connect(runtime)) {}

  std::string name() const override { return "gloo"; }

  std::vector<std::unique_ptr<AllReduceRun>> prepare(const AllReduceCase& what) override {
    check(what.home == Home::kUser, "Gloo is measured in host memory; leave gloo out");
    check(what.op != ReduceOp::kAverage, "Gloo has no average; use --op sum with --compare gloo");
    std::vector<std::unique_ptr<AllReduceRun>> runs;
    if (what.count() == 0) {
      runs.push_back(std::make_unique<EmptyRun>(what));
      return runs;
    }
    visit_dtype(what.dtype, [&]<typename T>(std::type_identity<T> type) {
      if constexpr (std::is_arithmetic_v<T>) {
        add_runs(type, what, runs);
      } else {
        throw KoloError({.code = ErrorCode::kConfig,
                         .what = fmt::format("Gloo is not compared for {}; leave gloo out",
                                             to_string(what.dtype))});
      }
    });
    return runs;
  }

 private:
  template <typename T>
  void add_runs(std::type_identity<T> type, const AllReduceCase& what,
                std::vector<std::unique_ptr<AllReduceRun>>& runs) {
    using Options = gloo::AllreduceOptions::Algorithm;
    const int count = narrow<int>(what.count());
    runs.push_back(std::make_unique<FunctionRun>(type, context_, what, "ring", Options::RING));
    runs.push_back(std::make_unique<FunctionRun>(type, context_, what, "bcube", Options::BCUBE));
    runs.push_back(std::make_unique<ClassRun>(what, "ring_chunked", [&](void* data) {
      return std::make_unique<gloo::AllreduceRingChunked<T>>(
          context_, std::vector{static_cast<T*>(data)}, count, reduction<T>(what.op));
    }));
    runs.push_back(std::make_unique<ClassRun>(what, "halving_doubling", [&](void* data) {
      return std::make_unique<gloo::AllreduceHalvingDoubling<T>>(
          context_, std::vector{static_cast<T*>(data)}, count, reduction<T>(what.op));
    }));
  }

  std::shared_ptr<gloo::Context> context_;  // Gloo's algorithms share it.
};

}  // namespace

std::unique_ptr<AllReduceSystem> make_gloo_system(Runtime& runtime) {
  return std::make_unique<GlooSystem>(runtime);
}

}  // namespace kolo::bench
