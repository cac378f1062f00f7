#include "benchmarks/peers/gloo_contexts.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/common/exchange.h"
#include "benchmarks/peers/network_address.h"
#include "comm/base/check.h"

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

}  // namespace

GlooContexts::GlooContexts(Runtime& runtime) : runtime_(runtime), device_(open_device(runtime)) {}

std::shared_ptr<gloo::Context> GlooContexts::of(const std::string& name) {
  std::shared_ptr<gloo::Context>& found = contexts_[name];
  if (found != nullptr) return found;
  auto context =
      std::make_shared<gloo::rendezvous::Context>(runtime_.rank(), runtime_.world_size());
  // Links may be slow: 64 MiB between 4 nodes at 100 Mbit/s take 8 s.
  context->setTimeout(std::chrono::minutes(1));
  ExchangeStore store(runtime_, name);
  context->connectFullMesh(store, device_);
  return found = std::move(context);
}

}  // namespace kolo::bench
