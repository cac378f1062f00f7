#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/base/buffer_view.h"
#include "comm/base/clock.h"
#include "comm/device/device.h"
#include "fusion/bucket_planner.h"
#include "fusion/readiness.h"
#include "runtime/bucket_table.h"
#include "runtime/kolo.h"
#include "runtime/ticket.h"

namespace kolo {

/// A registered gradient set, shared by the user's threads and the engine.
///
/// The engine fills in the plan before `registration()` completes; afterwards the plan is constant,
/// and only the progress of the current iteration changes, under a lock of its own.
class GradientGroup final : public BucketOwner {
 public:
  GradientGroup(std::string name, std::vector<GradientSpec> gradients, GradientOptions options);

  const std::string& name() const { return name_; }
  const std::vector<GradientSpec>& gradients() const { return gradients_; }
  const GradientOptions& options() const { return options_; }
  TicketState& registration() { return registration_; }

  // --- The engine's thread --------------------------------------------------------------------

  /// Memory for a gradient that the caller has no memory for and that cannot live in its bucket.
  void* allocate(std::size_t bytes);
  void* allocate_on_device(std::size_t bytes);
  /// Gives every gradient in device memory its ready event. `device` outlives the group's use.
  void attach(Device& device);
  /// Of a gradient in device memory.
  const Event& ready_event(std::size_t gradient) const { return *ready_events_[gradient]; }
  /// The plan of an accepted registration, with where each gradient lives and each bucket's id,
  /// and for buckets in device memory the event behind their results (null for others).
  void planned(const Plan& plan, std::vector<BufferView> views, std::vector<BucketId> buckets,
               std::vector<const Event*> finished_events, PlanSummary summary);
  const std::vector<BucketId>& buckets() const { return buckets_; }

  void bucket_enqueued(std::size_t index) override;
  void bucket_finished(std::size_t index) override;
  void bucket_failed(const Error& error) override;
  const std::atomic<int>& waiters() const override;

  // --- The user's threads ---------------------------------------------------------------------

  const BufferView& view(std::size_t index) const { return views_[index]; }
  const PlanSummary& summary() const { return summary_; }
  /// A bucket whose gradients are all marked.
  struct ReadyBucket {
    std::size_t index = 0;
    /// Nothing is left to mark in this iteration, and in former ones `wait` came at once after
    /// that.
    bool expects_wait = false;
  };
  /// Notes that the user marked a gradient. Returns its bucket if that was the last gradient it
  /// waited for. Errors: UsageError if it was marked before; the error of a failed group.
  std::optional<ReadyBucket> note_ready(std::size_t index);
  /// The same for one in device memory that a stream is going to write.
  std::optional<ReadyBucket> note_ready(std::size_t index, NativeStream stream);
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
  std::string unmarked_names() const;

  const std::string name_;
  const std::vector<GradientSpec> gradients_;
  const GradientOptions options_;
  TicketState registration_;
  Device* device_ = nullptr;
  std::vector<AlignedMemory> memory_;
  std::vector<DeviceMemory> device_memory_;
  std::vector<std::unique_ptr<Event>> ready_events_;  // by gradient; null in host memory
  std::vector<const Event*> finished_events_;         // by bucket; null in host memory
  std::vector<BufferView> views_;
  std::vector<BucketId> buckets_;
  PlanSummary summary_;

  mutable std::mutex mutex_;  // Guards what follows; the atomics are read without it, too.
  std::condition_variable changed_;
  std::optional<Readiness> readiness_;
  std::vector<bool> marked_;  // in the current iteration
  std::size_t marks_ = 0;
  std::size_t iteration_ = 0;  // that `ready` marks; ended by `wait`
  TimePoint all_marked_at_{};
  int prompt_waits_ = 0;                  // in a row
  std::atomic<std::size_t> enqueued_{0};  // buckets, over all iterations
  std::atomic<std::size_t> finished_{0};
  std::atomic<bool> has_failed_{false};
  std::optional<Error> error_;  // constant once it has failed
  std::atomic<int> waiters_{0};
};

}  // namespace kolo
