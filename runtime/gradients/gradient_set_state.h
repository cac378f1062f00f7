#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/base/buffer_view.h"
#include "comm/base/clock.h"
#include "comm/base/mutex.h"
#include "comm/device/device.h"
#include "fusion/bucket_planner.h"
#include "fusion/gradient_divisor.h"
#include "fusion/wire_scale.h"
#include "runtime/buckets/bucket_table.h"
#include "runtime/buckets/ticket_state.h"
#include "runtime/gradients/compressed_set.h"
#include "runtime/gradients/compression_choice.h"
#include "runtime/gradients/gradient_events.h"
#include "runtime/gradients/gradient_iterations.h"
#include "runtime/options/plan_summary.h"

namespace kolo {

/// A registered gradient set in the engine: its gradients, their memory, the plan and the buckets.
/// `iterations()` serves the user's threads during an iteration.
///
/// The engine sets memory and plan before `registration()` completes. The memory never changes. The
/// plan may change at the end of an iteration, after a vote that is part of the iteration.
///
/// Threads: the engine's. The user's threads may read between iterations.
class GradientSetState final : public BucketOwner {
 public:
  /// `choices` are the decisions about compression, made and open.
  GradientSetState(std::string name, std::vector<GradientSpec> gradients, GradientOptions options,
                   CompressionChoices choices = {});
  /// Makes the set write its iterations to `timeline`. Precondition: the set is not submitted yet.
  void write_to(std::shared_ptr<Timeline> timeline) { iterations_.write_to(std::move(timeline)); }

  const std::string& name() const { return name_; }
  /// The gradients as registered. If the divisor needs weights of ranks, one more entry holds them.
  const std::vector<GradientSpec>& gradients() const { return gradients_; }
  /// Returns the number of gradients, without weights.
  std::size_t size() const { return size_; }
  const GradientOptions& options() const { return options_; }
  /// Threads: any, also for `iterations`; both objects are thread-safe.
  TicketState& registration() { return registration_; }
  GradientIterations& iterations() { return iterations_; }
  const GradientIterations& iterations() const { return iterations_; }
  /// Returns whether the set has failed. Every later call then throws the error.
  bool failed() const override { return iterations_.failed(); }

  // --- The engine's thread --------------------------------------------------------------------

  /// Returns name, gradients and open choices as text, which must be equal on all ranks.
  std::string describe() const;
  /// The gradients with the compression and wire dtypes now in force; changed by `settle`.
  const std::vector<GradientSpec>& travelling() const { return travelling_; }
  /// Allocates memory for a gradient that has no memory of the caller and no place in its bucket.
  void* allocate(std::size_t bytes);
  void* allocate_on_device(std::size_t bytes);
  /// Creates the ready event of every gradient in device memory. `device` must outlive the set.
  void attach(Device& device);
  /// Returns the state of host gradients on a 16-bit wire, which stays when the plan changes.
  std::shared_ptr<WireState> wire_state(int ranks);
  /// Returns the event after which a gradient in device memory is ready.
  const Event& ready_event(std::size_t gradient) const { return events_.ready(gradient); }
  /// Sets the memory of each gradient, for gradients in the arena as offset in the set's region.
  void placed(std::vector<BufferView> views, std::vector<std::optional<std::size_t>> arena_offsets,
              std::optional<std::size_t> arena_region, int ranks);
  /// Sets the address of a gradient in device memory, once its bucket has one.
  void set_data(std::size_t gradient, void* data) { views_[gradient].data = data; }
  std::optional<std::size_t> arena_place(std::size_t gradient) const;
  std::optional<std::size_t> arena_region() const { return arena_region_; }
  /// Sets the plan, each bucket's id, and for buckets in device memory the event after their
  /// results (null for others). Called between iterations, or as the last part of an iteration.
  void planned(Plan plan, std::vector<BucketId> buckets, std::vector<const Event*> finished_events,
               PlanSummary summary);
  const std::vector<BucketId>& buckets() const { return buckets_; }
  /// Returns the bucket that runs as number `index` in this iteration.
  BucketId id_of(std::size_t index) const {
    return index < CompressedSet::kFirst ? buckets_[index] : compressed_.next(index);
  }
  CompressedSet& compressed() { return compressed_; }
  const CompressedSet& compressed() const { return compressed_; }

  /// Returns whether some gradients are sent dense only until steps are measured.
  bool is_open() const { return !choices_.open.empty(); }
  /// Returns whether this gradient is sent dense only until steps are measured. The user's threads
  /// may call it, too, between iterations.
  bool is_undecided(std::size_t gradient) const;
  /// Begins the first of `kMeasuredIterations` dense iterations. They are timed by `clock`, which
  /// must outlive them. When all buckets of the last one are over, the engine's thread calls
  /// `cast_vote`.
  void measure_dense_steps(const Clock& clock, std::function<void()> cast_vote);
  /// Makes the open decisions. Returns whether the set must be planned again.
  bool settle(const DenseSteps& measured, const ProcessGrid& grid, const LinkCosts& costs);
  const std::vector<CompressionDecision>& decisions() const { return choices_.decisions; }
  /// Fails the current iteration and every later call. The first error counts.
  void fail(const Error& error) noexcept;

  void bucket_started(std::size_t index) override { iterations_.bucket_started(index); }
  void bucket_enqueued(std::size_t index) override {
    // A compressed bucket counts when it is finished, because `wait` then ends its step.
    if (index < CompressedSet::kFirst) iterations_.bucket_enqueued();
  }
  void bucket_finished(std::size_t index) override;
  void bucket_abandoned(std::size_t) override { iterations_.bucket_abandoned(); }
  void bucket_rejected(const Error& error) override { fail(error); }
  std::string_view stand_in(std::uint64_t uses) override;
  /// Returns whether this rank, having joined, must begin or end an iteration without data.
  bool stands_in() const { return stand_in_ != StandIn::kNone; }
  /// Returns whether the end of such an iteration awaits a check on the device.
  bool awaits_check() const { return stand_in_ == StandIn::kUnderWay && iterations_.is_over(); }
  /// Begins or ends an iteration without data if possible. Returns the buckets that are ready.
  std::vector<std::size_t> move_stand_in();
  /// Notes whether the program has the set, or waits for its registration. Otherwise it may have
  /// freed the memory of gradients, and this rank begins no iteration without data. Threads: any.
  void let_go() { is_held_ = false; }
  void hold() { is_held_ = true; }
  /// Returns all buckets, because an iteration of the set needs each of them.
  std::vector<BucketId> buckets_rejected_with(BucketId id) const override;
  /// Returns the number of threads that wait for the registration or for gradients.
  int waiters() const override { return iterations_.waiters() + registration_.waiters(); }
  bool is_watched() const override { return iterations_.is_watched(); }

  // --- The user's threads ---------------------------------------------------------------------

  /// Marks a gradient as complete. Errors: as `GradientSet::ready`.
  std::optional<GradientIterations::ReadyBucket> mark(std::size_t gradient);
  /// Marks a gradient as unused by this rank: fills it with the identity of the reduction. Errors:
  /// as `GradientSet::absent`.
  std::optional<GradientIterations::ReadyBucket> mark_absent(
      std::size_t gradient, std::optional<NativeStream> stream = std::nullopt);
  /// Marks the weights if all gradients are marked. Called after each mark.
  std::optional<GradientIterations::ReadyBucket> mark_weights() {
    return iterations_.mark_weights();
  }
  /// See `GradientIterations::wait`; then divides by weights.
  bool wait(std::chrono::milliseconds timeout, ProgressEngine* progress_engine = nullptr);
  bool wait(std::chrono::milliseconds timeout, NativeStream stream,
            ProgressEngine* progress_engine = nullptr);
  /// See `GradientIterations::wait_for`, with the errors of `GradientSet::wait`; then divides this
  /// gradient by its weight.
  bool wait_for(std::size_t gradient, std::chrono::milliseconds timeout,
                ProgressEngine* progress_engine = nullptr);
  /// See `GradientSet::take_combined`.
  std::vector<std::size_t> take_combined();
  /// Works like `GradientSet::set_samples`, with its errors.
  void set_samples(double samples);
  const BufferView& view(std::size_t index) const { return views_[index]; }
  const std::vector<BufferView>& views() const { return views_; }
  PlanSummary summary() const;
  std::uint64_t too_large() const { return wire_state_ ? wire_state_->too_large() : 0; }
  /// The functions for compression are called between iterations. `world_size` is the group's size.
  CompressionState save_compression() const;
  /// Errors: KoloError(kData) if the state is of another set; then nothing has changed.
  void load_compression(const CompressionState& state);
  void remap_compression(std::span<const CompressionState> old_ranks, int world_size);

 private:
  /// Throws KoloError(kData) if a state has residuals, but "auto" has not decided yet.
  void check_decided(std::span<const CompressionState> states) const;

  /// State of an iteration that this rank, having joined, runs without data.
  enum class StandIn : std::uint8_t { kNone, kDue, kUnderWay };

  const std::string name_;
  const std::size_t size_;
  const std::vector<GradientSpec> gradients_;
  std::vector<GradientSpec> travelling_;
  const GradientOptions options_;
  CompressionChoices choices_;
  TicketState registration_;
  Device* device_ = nullptr;
  std::vector<AlignedMemory> memory_;
  std::vector<DeviceMemory> device_memory_;
  std::shared_ptr<WireState> wire_state_;  // shared with packers; null until one needs it
  std::vector<BufferView> views_;
  std::vector<std::optional<std::size_t>> arena_offsets_;  // by gradient, in the region of the set
  std::optional<std::size_t> arena_region_;
  std::vector<BucketId> buckets_;
  CompressedSet compressed_;
  GradientEvents events_;
  std::function<void()> cast_vote_;
  StandIn stand_in_ = StandIn::kNone;
  std::atomic<bool> is_held_ = true;
  std::optional<GradientDivisor> divisor_;  // empty if it needs no weights
  GradientIterations iterations_{name_, gradients_, size_, compressed_, events_};

  mutable Mutex mutex_;
  PlanSummary summary_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo
