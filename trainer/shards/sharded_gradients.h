#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/parameter_set.h"
#include "trainer/shards/shard_plan.h"

namespace kolo::trainer {

/// Gradients whose averages go to the ranks that own them: each bucket is reduce-scattered, in the
/// background, as soon as the backward pass has completed it. Makes each rank the owner of its
/// shards (`Parameter::own_shard`) and binds the memory of gradients, which lies in Kolo's arena.
///
/// Whole gradients are kept for the step, or not: then a bucket has memory from the first
/// contribution of a backward pass until it is reduced, and buckets use the same memory one after
/// the other. They are float32; with the option `wire_dtype` they travel as bfloat16.
///
/// Collective: all ranks mark the same gradients in the same order. Threads: one. `runtime`,
/// `parameters` and `plan` outlive it.
class ShardedGradients {
 public:
  enum class Keep { kWhole, kShards };

  ShardedGradients(Runtime& runtime, ParameterSet& parameters, const ShardPlan& plan, Keep keep);
  ~ShardedGradients();
  ShardedGradients(const ShardedGradients&) = delete;
  ShardedGradients& operator=(const ShardedGradients&) = delete;

  /// Gives the bucket of a parameter of the plan memory, if it has none; perhaps that of a bucket
  /// on its way, for which it waits. Errors: those of the runtime.
  void open(std::size_t parameter);
  /// The gradient of a parameter of the plan is complete.
  void ready(std::size_t parameter);
  /// Waits until this rank has the averages of its shards. Errors: those of the runtime.
  void wait();

  /// Memory of gradients on this rank so far.
  std::size_t bytes() const { return bytes_; }

 private:
  using Memory = std::shared_ptr<std::byte[]>;
  struct Bucket {
    std::span<float> whole;  // empty while it has no memory
    std::span<float> shard;
    std::size_t left = 0;  // gradients that are not complete
    std::optional<Ticket> reduction;
    std::optional<std::size_t> slot;  // of `slots_`, that `whole` is
  };

  std::span<float> allocate(std::size_t count);
  void give_memory(std::size_t bucket, std::span<float> whole);
  void take_memory(std::size_t bucket);
  std::size_t free_slot();
  void finish(std::size_t bucket);

  Runtime& runtime_;
  ParameterSet& parameters_;
  const ShardPlan& plan_;
  const Keep keep_;
  std::vector<Memory> memories_;
  std::size_t bytes_ = 0;
  std::vector<Bucket> buckets_;          // by number in the plan
  std::vector<std::span<float>> slots_;  // each for any bucket
  std::vector<std::size_t> free_slots_;
  std::vector<std::size_t> in_flight_;  // buckets, in the order in which they were reduced
};

}  // namespace kolo::trainer
