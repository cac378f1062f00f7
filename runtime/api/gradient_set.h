#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/native_stream.h"
#include "comm/base/span.h"
#include "runtime/options/plan_summary.h"

namespace kolo {

class GradientSetState;
class GroupState;

/// A set of gradients that are summed together in every iteration.
///
/// Threads: `ready` or `absent` from any thread, once per gradient and iteration; `wait` from one
///          thread at a time.
/// Errors:  a set that has failed stays failed: every later call throws its error. After a mismatch
///          or a stall all ranks may register it again; after any other failure the job is over.
class GradientSet {
 public:
  /// Leaves the other set unusable.
  GradientSet(GradientSet&&) noexcept;
  /// Ends this set as its destructor does, and leaves the other set unusable.
  GradientSet& operator=(GradientSet&&) noexcept;
  /// In the middle of an iteration the destructor first ends that iteration: afterwards no thread,
  /// peer or message uses the memory of the gradients. If all gradients are marked, it waits for
  /// their values; otherwise the iteration cannot end (unless `give_up` was called), and this rank
  /// leaves the job, as by `Runtime::abort`. Logs errors.
  ~GradientSet();

  /// Returns the number of gradients.
  std::size_t size() const;
  /// Returns the memory of gradient `index`: the caller's, or part of the arena. It never moves.
  BufferView view(std::size_t index) const;

  /// Marks gradient `index` of the current iteration as complete. Its bucket starts when all
  /// gradients of the bucket are ready on all ranks; a small bucket, or a bucket of a group on one
  /// node, starts when they are ready on this rank. The memory belongs to the runtime until `wait`
  /// returns.
  ///
  /// Cost:   may sum up to 1 MiB in the calling thread, and never waits for a peer.
  /// Errors: UsageError for a wrong index or a second call in one iteration; the error of the
  ///         set if it has failed.
  void ready(std::size_t index);

  /// Works like `ready(index)`, for a gradient in device memory that is complete after the work
  /// enqueued on `stream` so far. Agreement starts at once; the data is read after that work.
  void ready(std::size_t index, NativeStream stream);

  /// Works like `ready(index)`, and checks that the gradient still is at its registered address.
  /// Kolo reads that address, even if the program has moved the gradient (a vector that grew, a
  /// framework that frees gradients).
  ///
  /// Errors: as `ready(index)`; UsageError, and no mark, if `data` is another address.
  void ready_at(std::size_t index, const void* data);

  /// Marks gradient `index` as unused by this rank in the current iteration. The gradient counts as
  /// zeros (in a minimum, maximum or product as the identity of the operation). Its memory may be
  /// uninitialized; after `wait` the memory has the combined value, as on all ranks. A residual of
  /// the gradient is sent as in any other iteration.
  ///
  /// Cost:   as `ready`; also writes the gradient once, in the calling thread if it is in host
  ///         memory.
  /// Errors: as `ready`; UsageError also if both are called in one iteration, and for a minimum,
  ///         maximum or product in device memory.
  void absent(std::size_t index);

  /// Works like `absent(index)`, for a gradient in device memory that the work enqueued on `stream`
  /// so far may use.
  void absent(std::size_t index, NativeStream stream);

  /// Marks every gradient that is not marked in the current iteration as absent. Use it if this
  /// rank cannot compute them, because its batch is bad or its loss is not finite. Then call `wait`
  /// and the optimizer's step as the other ranks do, and all weights stay equal: gradients that
  /// this rank has marked count, the rest count as zeros. To skip a step, all ranks call `give_up`
  /// and `wait`, and ignore the values.
  ///
  /// Threads: no other thread may mark gradients during the call. Cost and errors: as `absent`.
  void give_up();

  /// Works like `give_up()`, for device memory that the work enqueued on `stream` may use.
  void give_up(NativeStream stream);

  /// Sets this rank's number of samples, for this iteration and all later ones, in a set whose
  /// divisor is `Divisor::kSamples`. Call it before the first `ready`, and between `wait` and
  /// `ready` whenever the number changes. `ready` then multiplies the gradient by that number in
  /// the calling thread, and `wait` divides the sum by the samples of all ranks that have the
  /// gradient. The number need not be whole. With zero samples the gradients count as zeros,
  /// whatever they hold.
  ///
  /// Errors: UsageError for another divisor, a negative or infinite number, and in the middle of an
  ///         iteration.
  void set_samples(double samples);

  /// Blocks until every gradient of this iteration holds the combined value, and begins the next
  /// iteration.
  ///
  /// Errors: UsageError naming the gradients that are not marked. KoloError(kTimeout) after
  ///         `operation_timeout`: the call may be repeated. KoloError(kPeerLost) for a lost peer,
  ///         and other codes for a mismatch, a stall or a failure inside a rank, equal on every
  ///         rank: the set has then failed.
  void wait();

  /// Waits like `wait()`, but for at most `limit`. Returns false if the iteration is not over by
  /// then; the call may be repeated.
  bool wait_for(std::chrono::milliseconds limit);

  /// Blocks until all work on device memory is enqueued on the device, and makes `stream` wait for
  /// the combined values. Gradients in host memory are complete on return, and all are if a
  /// compression keeps residuals, because the step is then accepted or discarded.
  void wait(NativeStream stream);

  /// Blocks until gradient `index` of this iteration holds the combined value, so that the
  /// optimizer can update layer by layer. Mark all gradients first, and end the iteration by
  /// `wait()`: until that returns, the memory may be read but not written. Gradients may be waited
  /// for in any order and repeatedly; the call returns at once if the gradient is complete.
  ///
  /// Errors: as `wait()`; UsageError also for a wrong index.
  void wait(std::size_t index);

  /// Waits like `wait(index)`, but for at most `limit`. Returns false if the gradient is not
  /// combined by then.
  bool wait_for(std::size_t index, std::chrono::milliseconds limit);

  /// A descriptor for poll, epoll or an event loop. It is readable while this iteration has
  /// combined gradients for `take_combined` to return, and once the set has failed. It may also be
  /// readable without cause. It lives as long as the set; only poll it.
  ///
  /// After the first call, a program that has marked all gradients counts as waiting for them: a
  /// stall becomes an error after the option `stall_abort`.
  ///
  /// Errors: KoloError(kResources) if no descriptor is left.
  int event();

  /// Returns the indices of the gradients of this iteration that were combined since the last call.
  /// Not all gradients need to be marked. Until `wait` ends the iteration their memory may be read
  /// but not written. Never blocks. Threads: as `wait`. Errors: the error of a set that has failed.
  std::vector<std::size_t> take_combined();

  /// Returns the plan in force. With compression "auto" it may change after the 20th iteration.
  PlanSummary plan() const;

  /// Returns the number of finite values of this rank, over all iterations, that exceeded the range
  /// of the 16-bit wire. Kolo sent the largest value of the wire dtype instead.
  std::uint64_t too_large() const;

  // Calls for compressed gradients. Make them between `wait` and the next `ready`.

  /// Makes the next iteration dense and lets it send all residuals, for example before the number
  /// of ranks changes or training ends. Collective.
  void flush_residuals();
  /// Returns the compression state of this rank (residuals, step number, exponents of a float16
  /// wire) as bytes for its checkpoint.
  std::vector<std::byte> save_compression() const;
  /// Restores a state of the same set on the same number of ranks; training continues bit for bit.
  /// Errors: KoloError(kData) if the state belongs to another set; then nothing has changed.
  void load_compression(Span<const std::byte> state);
  /// Restores the states of all former ranks, in rank order, on any number of ranks and nodes. The
  /// sum of all residuals is preserved. Collective, with equal states. Errors: KoloError(kData) if
  /// a residual or a velocity belongs to a gradient that this set sends dense; then nothing has
  /// changed.
  void remap_compression(Span<const std::vector<std::byte>> states);
  /// Discards all residuals and logs a warning with their norm. Collective.
  void drop_residuals();
  /// Returns the Euclidean norm of a gradient's residual on this rank; empty if it is sent dense.
  std::optional<double> residual_norm(std::string_view gradient) const;
  /// Returns one entry for each compressed bucket.
  std::vector<CompressionStats> compression_stats() const;
  /// Returns true if gradient `index` is sent sparsely or as codes in the next iteration. It is
  /// then added to a residual, so it must be marked without a loss scale.
  bool is_sparse(std::size_t index) const;
  /// Returns true if gradient `index` is sent sparsely or as codes in the next iteration or may be
  /// in a later one: with compression "auto" until the choice is made.
  bool may_become_sparse(std::size_t index) const;
  /// Returns true if the next iteration applies momentum to gradient `index` ("dgc"). The optimizer
  /// must then add no momentum.
  bool corrects_momentum(std::size_t index) const { return corrected_momentum(index) > 0; }
  /// Returns the momentum factor of gradient `index` in the next iteration; 0 without momentum.
  float corrected_momentum(std::size_t index) const;
  /// Returns true if the next iteration is one of the dense iterations ("warmup") that precede
  /// sparse iterations for gradient `index`. A dense iteration delivers the plain average and
  /// leaves no residual.
  bool is_warming_up(std::size_t index) const;

 private:
  friend class Group;
  GradientSet(std::shared_ptr<GroupState> owner, std::shared_ptr<GradientSetState> group);

  template <typename Wait>
  void wait_within(const Wait& wait_up_to) const;
  void end() noexcept;
  void between_iterations(std::string_view call) const;

  std::shared_ptr<GroupState> owner_;
  std::shared_ptr<GradientSetState> set_state_;
};

}  // namespace kolo
