#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/base/buffer_view.h"
#include "comm/base/mutex.h"
#include "comm/base/span.h"
#include "runtime/api/group.h"
#include "runtime/api/ticket.h"
#include "runtime/store/parameter_store.h"
#include "runtime/store/store_messages.h"

namespace kolo {

/// The state of an optimizer for the elements that live on this rank.
struct OptimizerStates {
  struct OfKey {
    std::vector<float> first, second;  ///< Velocities, or moments.
    int steps = 0;
  };
  std::map<std::string, OfKey, std::less<>> by_key;
};

/// A built-in optimizer as updater of float32 values, which goes on from `states`. Errors:
/// UsageError for its name.
StoreUpdater make_updater(const StoreOptimizer& optimizer, std::shared_ptr<OptimizerStates> states =
                                                               std::make_shared<OptimizerStates>());

/// The elements of a key that live on this rank.
struct StoreShard {
  std::string key;
  std::size_t offset = 0;  ///< Index of the first one within the key.
  std::size_t row_width = 1;
  std::array<AlignedMemory, 2> memory;
  BufferView value = {};
  BufferView pushed = {};  ///< The last push of these elements.
  StoreVersion version = {};
  std::vector<std::uint64_t> pushes = {};  ///< Applied here, by worker.
};

/// What a rank keeps of a store, and the thread that serves it to all ranks.
///
/// Threads: any. The thread's exceptions end the job.
class StoreServer {
 public:
  /// `group` outlives it; `state` is the group's. Without `has_thread` no rank may send requests.
  StoreServer(Group& group, std::shared_ptr<GroupState> state, bool has_thread);
  /// Stops serving at once, unless all ranks have said goodbye.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  void add(std::uint64_t key, StoreShard shard) KOLO_EXCLUDES(mutex_);
  void set_updater(StoreUpdater updater) KOLO_EXCLUDES(mutex_);
  /// Where one push at a time arrives.
  BufferView pushed(std::uint64_t key) KOLO_EXCLUDES(mutex_);
  /// Applies the sum of one push of each worker, which has arrived.
  void apply_round(std::uint64_t key, double rate) KOLO_EXCLUDES(mutex_);
  /// Copies these rows of the shard, or without indices all its elements.
  StoreVersion copy(std::uint64_t key, Span<const std::int64_t> rows, void* out)
      KOLO_EXCLUDES(mutex_);
  /// Waits for the goodbyes of all ranks.
  void join();

 private:
  struct Waiting {
    int source = 0;
    StoreRequest request;
    std::vector<std::int64_t> rows;
  };

  void serve() noexcept;
  int listen(StoreRequest& request) KOLO_EXCLUDES(mutex_);
  void handle(int source, const StoreRequest& request) KOLO_EXCLUDES(mutex_);
  void update(StoreShard& shard, double rate) KOLO_REQUIRES(mutex_);
  void say_goodbye_for(int source) KOLO_REQUIRES(mutex_);
  void answer_waiting() KOLO_REQUIRES(mutex_);
  bool answer(const Waiting& waiting) KOLO_REQUIRES(mutex_);

  Group& group_;
  const std::shared_ptr<GroupState> state_;
  Mutex mutex_;
  std::map<std::uint64_t, StoreShard> shards_ KOLO_GUARDED_BY(mutex_);
  StoreUpdater updater_ KOLO_GUARDED_BY(mutex_);
  std::vector<Waiting> waiting_ KOLO_GUARDED_BY(mutex_);
  Outbox answers_ KOLO_GUARDED_BY(mutex_);  // no worker delays another one
  std::optional<Ticket> listening_ KOLO_GUARDED_BY(mutex_);
  bool is_stopping_ KOLO_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace kolo
