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

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/error.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/store_rendezvous.h"
#include "runtime/api/check_equal.h"
#include "runtime/api/group.h"
#include "runtime/options/options.h"

namespace kolo {

class Device;
class RuntimeState;
struct TunedChoice;

/// One rank's connection to its job, and the group of all ranks. Owns the engine thread. A process
/// may have several, at once or in succession. Under mpirun, MPI is finalized when the process
/// ends.
///
/// Threads: as for a group. Construct and destroy on the main thread.
class Runtime : public Group {
 public:
  /// Finds the job in the environment: Open MPI's `mpirun`, else RANK/WORLD_SIZE/MASTER_ADDR/
  /// MASTER_PORT (torchrun), else SLURM_PROCID/SLURM_STEP_NUM_TASKS, else a job of one rank.
  /// KOLO_* variables fill every option that `options` leaves at its default.
  static Runtime from_environment(Options options = {});

  /// Joins the job that `rendezvous` describes. Collective.
  Runtime(std::unique_ptr<Rendezvous> rendezvous, Options options);
  /// Leaves the other runtime unusable.
  Runtime(Runtime&&) noexcept;
  /// Leaves the other runtime unusable.
  Runtime& operator=(Runtime&&) noexcept;
  /// Closes the runtime; logs errors instead of throwing them.
  ~Runtime();

  /// Returns the number of ranks in the job.
  int world_size() const;
  /// Returns this process's rank within its node.
  int local_rank() const;
  /// Returns the number of ranks on this node.
  int local_size() const;
  /// Returns the index of this node, from 0 to num_nodes() - 1.
  int node() const;
  /// Returns the number of nodes in the job.
  int num_nodes() const;
  /// Returns the options in force, with defaults filled in.
  const Options& options() const;
  /// Returns the link costs in force, as text for the option `link_costs`.
  std::string link_costs() const;
  /// Returns the choices in force that `kolo-bench tune` found for jobs of this shape.
  const std::vector<TunedChoice>& tuning() const;
  /// Returns the numeric address of this node for other nodes; empty if all ranks share a node.
  std::string network_address() const;
  /// Allocates memory for tensors that the other ranks of the node can read directly, so that
  /// collectives copy them once instead of twice. It is released with the last copy of the pointer,
  /// which must happen before the runtime ends; its contents are undefined.
  ///
  /// Threads: any. Not collective.
  /// Units:   bytes; aligned to a page. The memory, like the arenas of groups, is part of the
  ///          arena's `group_arena_bytes`.
  /// Errors:  KoloError(kResources), which names the bytes needed and the limit.
  std::shared_ptr<std::byte[]> allocate(std::size_t bytes);
  /// Leaves the job at once, because this rank cannot go on. Calls of the other ranks, and every
  /// later call here, fail with kPeerLost and an error that quotes `why`. If an exception destroys
  /// the runtime, the destructor does the same.
  void abort(std::string_view why);
  /// Stops counting the calling thread as a user of the job until its next call. Call it before the
  /// thread waits, outside Kolo, for another thread that calls Kolo. If all counted threads of a
  /// rank wait for Kolo, the rank can submit nothing more: that is how Kolo tells a deadlock from a
  /// slow rank.
  void leave_thread() const;
  /// Returns the accelerator that the option `device` names; null for "cpu".
  Device* device() const;

 private:
  /// Ends the job. Does nothing in a forked process, because only the parent is a rank.
  struct End {
    void operator()(RuntimeState* runtime) const;
  };

  explicit Runtime(std::unique_ptr<RuntimeState, End> runtime);

  std::unique_ptr<RuntimeState, End> runtime_;
};

}  // namespace kolo
