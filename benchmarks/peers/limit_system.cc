#include "benchmarks/peers/limit_system.h"

#include <optional>

#include "benchmarks/peers/memory_limit.h"
#include "benchmarks/peers/wire_limit.h"
#include "comm/base/check.h"

namespace kolo::bench {
namespace {

class LimitSystem final : public AllReduceSystem {
 public:
  explicit LimitSystem(Runtime& runtime) : runtime_(runtime) {
    if (runtime.num_nodes() > 1) wire_.emplace(runtime);
  }

  std::string name() const override { return "limit"; }
  bool sums() const override { return false; }
  std::vector<std::unique_ptr<AllReduceRun>> prepare(const AllReduceCase& what) override {
    check(what.home == Home::kUser, "limits are measured in host memory; leave limit out");
    std::vector<std::unique_ptr<AllReduceRun>> runs;
    if (wire_) {
      runs.push_back(std::make_unique<WireLimit>(runtime_, *wire_, what));
    } else {
      for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
        runs.push_back(std::make_unique<MemoryLimit>(runtime_, what, stores));
      }
    }
    return runs;
  }

 private:
  Runtime& runtime_;
  std::optional<WireNeighbours> wire_;
};

}  // namespace

std::unique_ptr<AllReduceSystem> make_limit_system(Runtime& runtime) {
  return std::make_unique<LimitSystem>(runtime);
}

}  // namespace kolo::bench
