#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/span.h"
#include "runtime/api/group.h"

namespace kolo {

class Outbox;
class StoreServer;
struct OptimizerStates;
struct StoreRequest;

/// Settings of a parameter store; equal on all its ranks.
struct StoreOptions {
  /// The ranks that share values, and when pushes are applied:
  ///   "local"       this rank alone;
  ///   "device"      the ranks of this node, as "dist_sync";
  ///   "dist_sync"   all ranks: a push is summed over them, and the sum is applied once;
  ///   "dist_async"  all ranks: each push is applied alone, as soon as it arrives.
  std::string type = "dist_sync";
  /// Ranks of the store that keep values; empty: all.
  std::vector<int> servers = {};
  /// For "dist_async": a worker waits in a push or pull while another one has made more than this
  /// number of pushes of the key less than itself. Empty: it never waits.
  std::optional<std::uint64_t> staleness = {};
  /// A key of more bytes than this is shared out among all servers in ranges of whole rows; another
  /// one lives on the server that its name selects. At the default a push of an unshared key is one
  /// message that need not wait for its receiver.
  std::size_t split_bytes = std::size_t{256} << 10;
  /// For "dist_async": bytes of this rank's pushes on their way. A push waits while there would be
  /// more, unless it is the only one.
  std::size_t in_flight_bytes = std::size_t{64} << 20;
  /// The group that the store creates for itself. Each push, except for "dist_async", needs memory
  /// of its arena for each key's largest part on a server.
  GroupOptions group = {"store", std::size_t{4} << 30};
};

/// A built-in optimizer. With gradient g = rescale * pushed and value w:
///   sgd    v = momentum * v + g + weight_decay * w;  w -= lr * v
///   adam   Adam, with weight_decay * w added to g
///   adamw  Adam, with lr * weight_decay * w subtracted from w
struct StoreOptimizer {
  std::string name = "sgd";
  double lr = 0.01;
  double momentum = 0.0;
  double weight_decay = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double rescale = 1.0;
};

/// One update: elements of a key that live on this rank, and what was pushed for them.
struct StoreUpdate {
  std::string_view key;
  std::size_t offset = 0;  ///< Index of the first of these elements within the key.
  BufferView value = {};   ///< To be changed in place.
  ConstBuffer pushed = {};
  double rate = 1.0;  ///< That of the push.
};
using StoreUpdater = std::function<void(const StoreUpdate&)>;

/// The state that a pull has read, the oldest of all its servers.
struct StoreVersion {
  std::uint64_t updates = 0;  ///< Number of updates of the key.
  std::uint64_t slowest = 0;  ///< Pushes that it contains of the worker that has pushed least.
};

/// Keys and values that ranks share, as in MXNet's KVStore: a push is merged into the value where
/// it lives, a pull reads the value. Values are in host memory, of any dtype of numbers.
///
/// Threads: one at a time. An updater is called by the thread that pushes, for "dist_async" by a
///          thread of the store; it does not call the store.
/// Errors:  UsageError that names the key, at the call. An updater that throws ends the job of a
///          store of several ranks. Other errors are those of the operations of `Group`.
class ParameterStore {
 public:
  /// Collective. The store must not outlive the runtime.
  /// Errors: KoloError(kMismatch) if options differ.
  explicit ParameterStore(Group& group, StoreOptions options = {});
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;
  /// Closes the store, and logs errors. If an exception unwinds, only leaves it.
  ~ParameterStore();

  const StoreOptions& options() const { return options_; }
  /// This rank among those of the store.
  int rank() const { return group_.rank(); }
  int num_workers() const { return group_.size(); }
  /// As `Group::network_bytes_sent`, of this rank as a worker and as a server.
  std::uint64_t network_bytes_sent() const { return group_.network_bytes_sent(); }

  /// Creates a key with rank 0's value. Rows of `row_width` elements stay on one server.
  /// Collective.
  void init(std::string_view key, const ConstBuffer& value, std::size_t row_width = 1);
  /// Merges the sum of `values`, each as long as the key, into the value: by the optimizer or
  /// updater, without one by assigning it. The memory is the caller's again when this returns.
  /// `rate` is for the updater; a built-in optimizer multiplies its learning rate by it.
  ///
  /// All ranks push a key equally often, keys in one order, and the push returns when the sum is
  /// applied. For "dist_async" none of this holds.
  void push(std::string_view key, const OneOrMore<ConstBuffer>& values, double rate = 1.0);
  /// Reads the value, which contains all earlier pushes of this rank, and for "dist_async" at least
  /// the first `pushes` of each worker. Not collective.
  StoreVersion pull(std::string_view key, const BufferView& out, std::uint64_t pushes = 0);
  /// A push and a pull. Collective, except for "dist_async".
  StoreVersion push_pull(std::string_view key, const OneOrMore<ConstBuffer>& values,
                         const BufferView& out);
  /// Reads only these rows, in this order, into consecutive rows of `out`. Not collective.
  StoreVersion row_sparse_pull(std::string_view key, const BufferView& out,
                               Span<const std::int64_t> rows);

  /// From now on pushes are float32 gradients for this optimizer, whose state lives with the
  /// values. It goes on from the state of an optimizer of the same name, so that settings such as
  /// the learning rate may change; those left out have their defaults. Collective, with equal
  /// settings.
  void set_optimizer(const StoreOptimizer& optimizer);
  /// From now on pushes are applied by this function. Collective.
  void set_updater(StoreUpdater updater);

  /// Waits until all ranks have called it and all their earlier pushes are applied.
  void barrier();
  /// Waits until all ranks close the store, and ends it. Collective, idempotent; after a time-out
  /// call it again.
  void close();

 private:
  struct Key;
  struct Part;

  void check_open(std::string_view call) const;
  Key& find(std::string_view key, std::string_view call);
  ConstBuffer merged(const Key& key, const OneOrMore<ConstBuffer>& values);
  void push_to_all(Key& key, const ConstBuffer& sum, double rate);
  void send_push(Key& key, const ConstBuffer& sum, double rate);
  void await_slowest(Key& key, std::uint64_t pushes = 0);
  StoreVersion pull(Key& key, const BufferView& out, std::uint64_t pushes = 0);
  StoreVersion ask_for(Key& key, const std::vector<Part>& parts);
  StoreVersion ask(std::string_view subject, StoreRequest request, const std::vector<Part>& parts);

  const StoreOptions options_;
  Group group_;
  const bool is_async_;
  const int exceptions_;
  std::map<std::string, std::unique_ptr<Key>, std::less<>> keys_;
  std::vector<std::byte> merged_;
  std::string optimizer_;  // name; empty without a built-in one
  std::shared_ptr<OptimizerStates> states_;
  std::uint64_t next_tag_ = 1;
  std::optional<Ticket> closing_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Outbox> outbox_;
};

}  // namespace kolo
