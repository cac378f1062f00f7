#pragma once

/// Kolo's public interface: gradient communication for data-parallel training.
///
///     #include <kolo/kolo.h>
///
///     auto runtime = kolo::Runtime::from_environment();  // mpirun, torchrun, Slurm or alone
///     auto gradients = runtime.register_gradients("model", specs);  // once; all ranks agree
///
///     // each iteration, as soon as gradient i is computed:
///     gradients.ready(i);
///     // before the optimizer step:
///     gradients.wait();  // every gradient is now the average
///
/// Everything here may throw `kolo::KoloError`; its `error()` names rank, peer, verb, tensor and
/// cause.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/dtype.h"
#include "comm/base/error.h"
#include "comm/base/native_stream.h"
#include "comm/rendezvous/rendezvous.h"
#include "fusion/gradient.h"
#include "runtime/api/compression_stats.h"
#include "runtime/api/options.h"
#include "runtime/api/ticket.h"

namespace kolo {

class Device;
class GradientGroup;
class RuntimeState;

/// What one iteration of a gradient set costs; equal for all iterations of a plan.
struct PlanSummary {
  std::size_t gradients = 0;
  std::size_t buckets = 0;
  std::size_t bytes = 0;         ///< Gradient bytes in the caller's dtypes.
  std::size_t wire_bytes = 0;    ///< Bytes this rank sends to other nodes per iteration.
  std::size_t fusion_bytes = 0;  ///< Largest bucket that was aimed at, in host memory.
  std::string algorithm = {};    ///< Of the largest bucket.
  std::string compression = {};  ///< How many gradients travel in which way; empty: all dense.
  std::string reason = {};       ///< Why that algorithm, if that bucket is in device memory.
  /// What was chosen for groups whose compression left something open, and why; of "auto", what it
  /// is for now until 20 iterations are measured. Naming a spec in place of "auto", or a route of
  /// top-k, decides otherwise.
  std::vector<CompressionDecision> compression_decisions = {};
  std::uint64_t hash = 0;  ///< Equal on all ranks.
};

/// A set of gradients that are summed together in every iteration.
///
/// Threads: `ready` may be called from any thread, each gradient once per iteration; `wait` from
/// one.
class GradientSet {
 public:
  GradientSet(GradientSet&&) noexcept;
  GradientSet& operator=(GradientSet&&) noexcept;
  ~GradientSet();

  std::size_t size() const;
  /// Where gradient `index` lives: the caller's memory or its place in the arena. Stable.
  BufferView view(std::size_t index) const;

  /// Says that gradient `index` of the current iteration is computed; its bucket starts when all of
  /// it is ready on all ranks. The memory belongs to the runtime until `wait` returns.
  void ready(std::size_t index);

  /// The same for a gradient in device memory that is complete behind what `stream` has been given
  /// so far: agreement goes ahead at once, the bytes follow.
  void ready(std::size_t index, NativeStream stream);

  /// Blocks until every gradient of this iteration holds the combined value, and begins the next
  /// iteration. Errors: UsageError naming the gradients for which `ready` was not called.
  void wait();

  /// For device memory: blocks until everything is on its way on the device, and lets what `stream`
  /// is given from now on wait for the combined values. Gradients in host memory are complete.
  void wait(NativeStream stream);

  /// With compression "auto" it may change once, at the end of the 20th iteration.
  PlanSummary plan() const;

  /// Finite values of this rank, over all iterations, that a 16-bit wire could not hold: they
  /// travelled as the largest one that it can.
  std::uint64_t too_large() const;

  // Of gradients that travel compressed; all of it between `wait` and the next `ready`.

  /// The next iteration is dense for all of them and brings along all that was not sent yet: before
  /// ranks come or go, or training ends. To be called on all ranks.
  void flush_residuals();
  /// What this rank has not sent yet, the number of the step, and exponents of a float16 wire, as
  /// bytes for its checkpoint.
  std::vector<std::byte> save_compression() const;
  /// The way back, with the same set on as many ranks: training goes on bit for bit.
  /// Errors: KoloError(kData) if the state is not of this set; nothing has changed then.
  void load_compression(std::span<const std::byte> state);
  /// The same on any number of ranks and nodes, from the states of all ranks that there were, in
  /// order: what was not sent is still worth as much. To be called on all ranks, with equal states.
  void remap_compression(std::span<const std::vector<std::byte>> states);
  /// Forgets what was not sent, and logs a warning with its norm: where a checkpoint shall not hold
  /// it, and a dense iteration is not wanted either. To be called on all ranks.
  void drop_residuals();
  /// Of one gradient, on this rank; empty if it does not travel sparsely.
  std::optional<double> residual_norm(std::string_view gradient) const;
  /// One entry for each compression group.
  std::vector<CompressionStats> compression_stats() const;
  /// Whether gradient `index` travels sparsely in the next iteration: it is then added to what was
  /// not sent, so that it must be marked without a loss scale.
  bool is_sparse(std::size_t index) const;
  /// Whether gradient `index` has its momentum already in the next iteration ("dgc"): an optimizer
  /// must not add its own.
  bool corrects_momentum(std::size_t index) const;
  /// Whether the next iteration is one of the dense ones that gradient `index`, which travels
  /// sparsely later, begins with ("warmup"): it brings the plain average, and nothing waits.
  bool is_warming_up(std::size_t index) const;

 private:
  friend class Runtime;
  GradientSet(RuntimeState& runtime, std::shared_ptr<GradientGroup> group);

  [[noreturn]] void fail_late() const;
  void between_iterations(std::string_view call) const;

  RuntimeState* runtime_;
  std::shared_ptr<GradientGroup> group_;
};

/// One rank's connection to its job. Owns the engine thread; two of them in one process are fine.
///
/// Threads: collective calls with the same name must be made once per rank; different threads may
///          make different calls. Construct and destroy on the main thread.
class Runtime {
 public:
  /// Finds the job in the environment: Open MPI's `mpirun`, else RANK/WORLD_SIZE/MASTER_ADDR/
  /// MASTER_PORT (torchrun), else SLURM_PROCID/SLURM_NTASKS, else a job of one rank. KOLO_*
  /// variables fill every option that `options` leaves at its default.
  static Runtime from_environment(Options options = {});

  /// Joins the job that `rendezvous` describes. Collective.
  Runtime(std::unique_ptr<Rendezvous> rendezvous, Options options);
  Runtime(Runtime&&) noexcept;
  Runtime& operator=(Runtime&&) noexcept;
  /// Closes; logs instead of throwing.
  ~Runtime();

  int rank() const;
  int world_size() const;
  int local_rank() const;
  int local_size() const;
  int node() const;
  int num_nodes() const;
  const Options& options() const;
  /// What links cost, measured or not, in the form that the option `link_costs` takes.
  std::string link_costs() const;
  /// The accelerator that the option `device` names, for whoever computes on it; null for "cpu".
  Device* device() const;

  /// Agrees on a set of gradients with all ranks and plans its buckets. Collective; the set must
  /// not outlive the runtime. Errors: KoloError(kMismatch), the same on every rank, naming rank,
  /// tensor and both values.
  GradientSet register_gradients(std::string_view name, std::vector<GradientSpec> gradients,
                                 GradientOptions options = {});

  /// Combines `buffer` over all ranks in place. `name` identifies the operation on all ranks; the
  /// first use of a name and shape is negotiated, later ones reuse its plan. Device memory is read
  /// behind what `stream` has been given so far; the ticket is done when the result is there.
  Ticket all_reduce_async(std::string_view name, BufferView buffer, ReduceOp op = ReduceOp::kSum,
                          NativeStream stream = {});
  void all_reduce(std::string_view name, BufferView buffer, ReduceOp op = ReduceOp::kSum,
                  NativeStream stream = {});

  /// The same out of place, in host memory: sums what is at `input` on each rank, as many elements
  /// of the same dtype as `result` has and not overlapping it, into `result`. `input` is only read.
  Ticket all_reduce_async(std::string_view name, const void* input, BufferView result,
                          ReduceOp op = ReduceOp::kSum);
  void all_reduce(std::string_view name, const void* input, BufferView result,
                  ReduceOp op = ReduceOp::kSum);

  /// Copies `buffer` of rank `root` to all ranks; `stream` as for an all-reduce.
  Ticket broadcast_async(std::string_view name, BufferView buffer, int root,
                         NativeStream stream = {});
  void broadcast(std::string_view name, BufferView buffer, int root, NativeStream stream = {});

  /// Returns when every rank has called it.
  void barrier();

  /// Payload bytes this rank has sent to ranks of other nodes so far.
  std::uint64_t network_bytes_sent() const;

  /// Waits until all ranks close, then stops the engine. Collective. After it every call fails with
  /// kShutdown. Idempotent.
  void close();

 private:
  std::unique_ptr<RuntimeState> state_;
};

}  // namespace kolo
