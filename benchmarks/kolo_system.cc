#include <fmt/format.h>

#include "benchmarks/all_reduce_system.h"
#include "comm/base/aligned_memory.h"

namespace kolo::bench {
namespace {

/// A gradient set of one gradient: the way that training takes.
class KoloRun final : public AllReduceRun {
 public:
  KoloRun(Runtime& runtime, const AllReduceCase& what)
      : memory_(what.in_arena ? nullptr : allocate_aligned(what.bytes)),
        gradients_(runtime.register_gradients("all_reduce",
                                              {{.name = fmt::format("{} bytes", what.bytes),
                                                .shape = {what.count()},
                                                .dtype = what.dtype,
                                                .data = memory_.get()}},
                                              {.op = what.op, .wire_dtype = what.wire})) {}

  BufferView buffer() override { return gradients_.view(0); }
  void run() override {
    gradients_.ready(0);
    gradients_.wait();
  }
  std::string algorithm() const override { return gradients_.plan().algorithm; }

 private:
  AlignedMemory memory_;
  GradientSet gradients_;
};

class KoloSystem final : public AllReduceSystem {
 public:
  explicit KoloSystem(Runtime& runtime) : runtime_(runtime) {}

  std::string name() const override { return "kolo"; }
  std::unique_ptr<AllReduceRun> prepare(const AllReduceCase& what) override {
    return std::make_unique<KoloRun>(runtime_, what);
  }
  std::optional<std::uint64_t> wire_bytes() const override { return runtime_.network_bytes_sent(); }

 private:
  Runtime& runtime_;
};

}  // namespace

std::unique_ptr<AllReduceSystem> make_kolo_system(Runtime& runtime) {
  return std::make_unique<KoloSystem>(runtime);
}

}  // namespace kolo::bench
