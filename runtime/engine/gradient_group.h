#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/base/buffer_view.h"
#include "comm/base/clock.h"
#include "comm/device/device.h"
#include "fusion/bucket_planner.h"
#include "fusion/readiness.h"
#include "fusion/wire_state.h"
#include "runtime/api/kolo.h"
#include "runtime/engine/bucket_table.h"
#include "runtime/engine/compressed_set.h"
#include "runtime/engine/step_times.h"
#include "runtime/engine/ticket_state.h"
#include "runtime/observe/timeline.h"
#include "runtime/plan/compression_choice.h"
#include "runtime/wait/wait_policy.h"

namespace kolo {

/// A registered gradient set, shared by the user's threads and the engine.
///
/// The engine fills in places and plan before `registration()` completes. Places are constant; the
/// plan may change at the end of an iteration, of which the vote on it is a part like a bucket.
/// Progress of the current iteration and what the user's threads read of the plan are under a lock
/// of their own.
class GradientGroup final : public BucketOwner {
 public:
  /// `choices` are those that led to the gradients' compression, and what is left to decide of it.
  GradientGroup(std::string name, std::vector<GradientSpec> gradients, GradientOptions options,
                CompressionChoices choices = {});
  /// Writes its iterations there, too. Before: it is not submitted yet.
  void write_to(std::shared_ptr<Timeline> timeline) { timeline_ = std::move(timeline); }

  const std::string& name() const { return name_; }
  /// As they were registered.
  const std::vector<GradientSpec>& gradients() const { return gradients_; }
  const GradientOptions& options() const { return options_; }
  TicketState& registration() { return registration_; }

  // --- The engine's thread --------------------------------------------------------------------

  /// Name, gradients and what is left to decide: alike on all ranks.
  std::string describe() const;
  /// How gradients travel now, which `settle` changes.
  const std::vector<GradientSpec>& travelling() const { return travelling_; }
  /// Memory for a gradient that the caller has no memory for and that cannot live in its bucket.
  void* allocate(std::size_t bytes);
  void* allocate_on_device(std::size_t bytes);
  /// Gives every gradient in device memory its ready event. `device` outlives the group's use.
  void attach(Device& device);
  /// Of gradients on the host that are cast to a 16-bit wire; outlives every plan.
  std::shared_ptr<WireState> wire_state(int ranks);
  /// Of a gradient in device memory.
  const Event& ready_event(std::size_t gradient) const { return *ready_events_[gradient]; }
  /// Where each gradient lives, and where those in the arena lie in this region of it.
  void placed(std::vector<BufferView> views, std::vector<std::optional<std::size_t>> arena_offsets,
              std::optional<std::size_t> arena_region);
  /// Of a gradient in device memory, which gets its place with its bucket.
  void set_data(std::size_t gradient, void* data) { views_[gradient].data = data; }
  std::optional<std::size_t> arena_place(std::size_t gradient) const;
  std::optional<std::size_t> arena_region() const { return arena_region_; }
  /// A plan, with each bucket's id, and for buckets in device memory the event behind their results
  /// (null for others). Between iterations, or as the last part of one.
  void planned(const Plan& plan, std::vector<BucketId> buckets,
               std::vector<const Event*> finished_events, PlanSummary summary);
  const std::vector<BucketId>& buckets() const { return buckets_; }
  /// What runs as bucket `index` in this iteration.
  BucketId id_of(std::size_t index) const {
    return index < CompressedSet::kFirst ? buckets_[index] : compressed_.next(index);
  }
  CompressedSet& compressed() { return compressed_; }
  const CompressedSet& compressed() const { return compressed_; }

  /// Whether some gradients travel dense only until steps are measured.
  bool is_open() const { return !choices_.open.empty(); }
  /// Begins the first iteration of a set that has nothing to vote on.
  void begin();
  /// Begins the first of `kMeasuredIterations` dense iterations. They are timed, and the last one
  /// ends with a vote: when nothing else is left of it, the engine's thread calls `cast_vote`.
  /// `clock` outlives them.
  void measure_dense_steps(const Clock& clock, std::function<void()> cast_vote);
  /// What these iterations took; timing ends.
  DenseSteps take_dense_steps();
  /// Decides what is open. Returns whether gradients travel in another way now, which is not
  /// planned yet.
  bool settle(const DenseSteps& measured, const ProcessGrid& grid, const LinkCosts& costs);
  const std::vector<CompressionDecision>& decisions() const { return choices_.decisions; }
  /// The vote is decided and its outcome planned: the iteration that it was the last part of ends.
  void end_vote();
  /// Fails what is under way, and every later call. The first error counts.
  void fail(const Error& error) noexcept;

  void bucket_started(std::size_t index) override;
  void bucket_enqueued(std::size_t index) override;
  void bucket_finished(std::size_t index) override;
  void bucket_rejected(const Error& error) override { fail(error); }
  /// All of them: without one, no iteration of the set ends.
  std::vector<BucketId> buckets_rejected_with(BucketId id) const override;
  /// Those that wait for its registration or for its gradients.
  int waiters() const override { return waiters_ + registration_.waiters(); }

  // --- The user's threads ---------------------------------------------------------------------

  const BufferView& view(std::size_t index) const { return views_[index]; }
  const std::vector<BufferView>& views() const { return views_; }
  PlanSummary summary() const;
  std::uint64_t too_large() const { return wire_state_ ? wire_state_->too_large() : 0; }
  /// Between iterations, as all that follows of compression. `world_size` is that of this job.
  CompressionState save_compression() const;
  /// Errors: KoloError(kData) if it is not of this set; nothing has changed then.
  void load_compression(const CompressionState& state);
  void remap_compression(std::span<const CompressionState> old_ranks, int world_size);
  /// A bucket whose gradients are all marked.
  struct ReadyBucket {
    std::size_t index = 0;
    /// Nothing is left to mark in this iteration; to be followed by `end_marking`.
    bool is_last = false;
    /// And in former ones `wait` came at once after that.
    bool expects_wait = false;
  };
  /// Notes that the user marked a gradient. Returns its bucket if that was the last gradient it
  /// waited for. Errors: UsageError if it was marked before; the error of a failed group.
  std::optional<ReadyBucket> note_ready(std::size_t index);
  /// The same for one in device memory that a stream is going to write.
  std::optional<ReadyBucket> note_ready(std::size_t index, NativeStream stream);
  /// The call that marked the last gradient returns.
  void end_marking();
  /// See `GradientSet::wait`; the caller's thread drives, if there is a driver. Returns false on
  /// time-out.
  bool wait(std::chrono::milliseconds timeout, Driver* driver = nullptr);
  bool wait(std::chrono::milliseconds timeout, NativeStream stream, Driver* driver = nullptr);
  /// Whether `wait` on a stream would return at once.
  bool all_enqueued() const;
  /// Whether an iteration has begun that is not over, or that no `wait` has ended.
  bool in_flight() const;
  /// Whether it has an error, which every later call throws.
  bool failed() const { return has_failed_.load(std::memory_order_acquire); }

 private:
  /// Waits until `progress` has counted the buckets of this iteration, then ends it.
  bool wait_for(const std::atomic<std::size_t>& progress, std::chrono::milliseconds timeout,
                Driver* driver);
  void begin_iteration();
  std::string unmarked_names() const;
  /// The iteration that is over, of which `wait` took so long.
  void write_iteration(const Timeline::Span& waited) const;
  /// Buckets of one iteration.
  std::size_t parts() const { return buckets_.size() + compressed_.size(); }

  const std::string name_;
  const std::vector<GradientSpec> gradients_;
  std::vector<GradientSpec> travelling_;
  const GradientOptions options_;
  CompressionChoices choices_;  // Changes under the lock.
  TicketState registration_;
  Device* device_ = nullptr;
  std::vector<AlignedMemory> memory_;
  std::vector<DeviceMemory> device_memory_;
  std::shared_ptr<WireState> wire_state_;  // shared with packers; null until one needs it
  std::vector<std::unique_ptr<Event>> ready_events_;  // by gradient; null in host memory
  std::vector<const Event*> finished_events_;         // by bucket; null in host memory
  std::vector<BufferView> views_;
  std::vector<std::optional<std::size_t>> arena_offsets_;  // by gradient, in the region
  std::optional<std::size_t> arena_region_;
  std::vector<BucketId> buckets_;
  CompressedSet compressed_;
  std::shared_ptr<Timeline> timeline_;  // shared with the runtime's other sets; may be null
  std::function<void()> cast_vote_;

  mutable std::mutex mutex_;  // Guards what follows; the atomics are read without it, too.
  std::condition_variable changed_;
  PlanSummary summary_;
  std::optional<Readiness> readiness_;
  std::vector<Timeline::Span> spans_;  // of dense buckets in this iteration, for the timeline
  std::vector<bool> marked_;           // in the current iteration, which `wait` ends
  std::size_t marks_ = 0;
  // Parts (buckets and votes) of former iterations, and with those of the current one.
  std::size_t ended_ = 0, target_ = 0;
  std::size_t until_vote_ = 0;   // iterations, with the current one; 0: no vote follows
  bool ends_with_vote_ = false;  // the current iteration
  StepTimes step_times_;
  PromptWaits prompt_waits_;
  std::atomic<std::size_t> enqueued_{0};  // parts, over all iterations
  std::atomic<std::size_t> finished_{0};
  std::atomic<bool> has_failed_{false};
  std::optional<Error> error_;  // constant once it has failed
  std::atomic<int> waiters_{0};
};

}  // namespace kolo
