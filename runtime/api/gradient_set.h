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

class GradientGroup;
class MemberState;

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
  /// Ends this one as its destructor does, and leaves the other set unusable.
  GradientSet& operator=(GradientSet&&) noexcept;
  /// In the middle of an iteration it ends that first: afterwards no thread, peer or message uses
  /// the memory of its gradients. If all of them are marked, it waits for their values; otherwise
  /// the iteration has no end (`give_up` gives it one), and this rank leaves the job, as by
  /// `Runtime::abort`. Logs errors.
  ~GradientSet();

  /// Number of gradients.
  std::size_t size() const;
  /// The memory of gradient `index`: the caller's, or a place in the arena. It never moves.
  BufferView view(std::size_t index) const;

  /// Marks gradient `index` of the current iteration as complete. Its bucket starts when all its
  /// gradients are ready: on all ranks, or for a small bucket or one within one node on this rank.
  /// The memory belongs to the runtime until `wait` returns.
  ///
  /// Cost:   may sum up to 1 MiB in the calling thread, and never waits for a peer.
  /// Errors: UsageError for a wrong index or a second call in one iteration; the error of the
  ///         set if it has failed.
  void ready(std::size_t index);

  /// The same for a gradient in device memory that is complete after the work enqueued on `stream`
  /// so far. Agreement starts at once; the data is read when the stream gets there.
  void ready(std::size_t index, NativeStream stream);

  /// `ready(index)` of a gradient that lies at `data` now. Memory that moves after its registration
  /// (a vector that grows, a framework that frees gradients) would be read where it was.
  ///
  /// Errors: as `ready(index)`; UsageError if it has moved, and nothing is marked then.
  void ready_at(std::size_t index, const void* data);

  /// Marks gradient `index` as unused by this rank in the current iteration. It counts as zeros (in
  /// a minimum, maximum or product as the element that changes no result), and its memory, which
  /// need not hold anything, has the combined value after `wait` as on all ranks. A residual of the
  /// gradient is sent as in any other iteration.
  ///
  /// Cost:   writes the gradient's memory once, host memory in the calling thread; else as `ready`.
  /// Errors: as `ready`; UsageError also if both are called in one iteration, and for a minimum,
  ///         maximum or product in device memory.
  void absent(std::size_t index);

  /// The same for a gradient in device memory that the work enqueued on `stream` so far may use.
  void absent(std::size_t index, NativeStream stream);

  /// Marks as absent whatever is not marked in the current iteration: for a rank that cannot
  /// compute it, because its batch is bad or its loss is not finite, so that an exception need not
  /// end the job. Go on with `wait` and the optimizer's step as the other ranks do, and all weights
  /// stay equal: what this rank has marked counts, the rest counts as zeros. Where all ranks know
  /// that none makes the step, each gives up, waits and leaves the values alone.
  ///
  /// Threads: no other thread marks gradients meanwhile. Cost and errors: as `absent`.
  void give_up();

  /// The same where the work enqueued on `stream` so far may use gradients in device memory.
  void give_up(NativeStream stream);

  /// Sets this rank's number of samples, for this iteration and all later ones, in a set whose
  /// divisor is `Divisor::kSamples`. Call it before the first `ready`, and between `wait` and
  /// `ready` whenever it changes. `ready` then multiplies the gradient by it in the calling thread,
  /// and `wait` divides the sum by the samples of all ranks that have the gradient. It need not be
  /// a whole number; float16 gradients call for one near 1, such as samples / usual samples. With
  /// zero samples the gradients count as zeros, whatever they hold.
  ///
  /// Errors: UsageError for another divisor, a negative or infinite number, and in the middle of an
  ///         iteration.
  void set_samples(double samples);

  /// Blocks until every gradient of this iteration holds the combined value, and begins the next
  /// iteration.
  ///
  /// Errors: UsageError naming the gradients that are not marked; KoloError(kTimeout) after
  ///         `operation_timeout`, when the call may be made again; KoloError(kPeerLost) for a lost
  ///         peer, and other codes for a mismatch, a stall or a failure inside a rank, the same on
  ///         every rank: then the set has failed.
  void wait();

  /// The same for at most `limit`. Returns false if the iteration is not over then; the call, or
  /// `wait`, may be made again.
  bool wait_for(std::chrono::milliseconds limit);

  /// For device memory: blocks until all work is enqueued on the device, and makes `stream` wait
  /// for the combined values. Gradients in host memory are complete on return.
  void wait(NativeStream stream);

  /// Blocks until gradient `index` of this iteration holds the combined value, so that an update
  /// can go layer by layer. Mark all gradients first, and end the iteration by `wait()`: until that
  /// returns, the memory may be read, not written. In any order, as often as wanted; returns at
  /// once for a gradient that is complete already.
  ///
  /// Errors: as `wait()`; UsageError also for a wrong index.
  void wait(std::size_t index);

  /// The same for at most `limit`. Returns false if the gradient has no combined value then.
  bool wait_for(std::size_t index, std::chrono::milliseconds limit);

  /// A descriptor for poll, epoll or an event loop, which is readable while gradients of this
  /// iteration have the combined value that `take_combined` has not returned, and from a failure of
  /// the set on. It may also be readable without cause. It lives as long as the set; only poll it.
  ///
  /// From the first call on, a program that has marked all gradients counts as one that waits for
  /// them: a stall is an error after the option `stall_abort`.
  ///
  /// Errors: KoloError(kResources) without a descriptor left.
  int event();

  /// The gradients of this iteration that have got the combined value since the last call, some of
  /// them perhaps before others are marked. Until `wait` ends the iteration their memory may be
  /// read, not written. Never blocks. Threads: as `wait`. Errors: that of a set which has failed.
  std::vector<std::size_t> take_combined();

  /// The plan in force. With compression "auto" it may change once, after the 20th iteration.
  PlanSummary plan() const;

  /// Number of finite values of this rank, over all iterations, that exceeded the range of the
  /// 16-bit wire. They were sent as the largest value that it holds.
  std::uint64_t too_large() const;

  // The calls below concern compressed gradients. Make them between `wait` and the next `ready`.

  /// Makes the next iteration dense and lets it send all residuals, for example before the number
  /// of ranks changes or training ends. Collective.
  void flush_residuals();
  /// The compression state of this rank (residuals, step number, exponents of a float16 wire) as
  /// bytes for its checkpoint.
  std::vector<std::byte> save_compression() const;
  /// Restores a state of the same set on the same number of ranks; training continues bit for bit.
  /// Errors: KoloError(kData) if the state belongs to another set; then nothing has changed.
  void load_compression(Span<const std::byte> state);
  /// Restores the states of all former ranks, in rank order, on any number of ranks and nodes. The
  /// sum of all residuals is preserved. Collective, with equal states.
  void remap_compression(Span<const std::vector<std::byte>> states);
  /// Discards all residuals and logs a warning with their norm. Collective.
  void drop_residuals();
  /// Euclidean norm of the residual of one gradient on this rank; empty if it is sent dense.
  std::optional<double> residual_norm(std::string_view gradient) const;
  /// One entry for each compression group.
  std::vector<CompressionStats> compression_stats() const;
  /// True if gradient `index` is sent sparsely in the next iteration. It is then added to a
  /// residual, so it must be marked without a loss scale.
  bool is_sparse(std::size_t index) const;
  /// True if gradient `index` is sent sparsely in the next iteration or may be in a later one: with
  /// compression "auto" until it decides.
  bool may_become_sparse(std::size_t index) const;
  /// True if the next iteration applies momentum to gradient `index` ("dgc"). The optimizer must
  /// then not add its own.
  bool corrects_momentum(std::size_t index) const { return corrected_momentum(index) > 0; }
  /// That momentum; 0 if there is none.
  float corrected_momentum(std::size_t index) const;
  /// True if the next iteration is one of the dense ones ("warmup") that precede sparse ones for
  /// gradient `index`. It delivers the plain average and leaves no residual.
  bool is_warming_up(std::size_t index) const;

 private:
  friend class Group;
  GradientSet(std::shared_ptr<MemberState> owner, std::shared_ptr<GradientGroup> group);

  template <typename Wait>
  void wait_within(const Wait& wait_up_to) const;
  void end() noexcept;
  void between_iterations(std::string_view call) const;

  std::shared_ptr<MemberState> owner_;
  std::shared_ptr<GradientGroup> group_;
};

}  // namespace kolo
