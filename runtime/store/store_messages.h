#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/base/buffer_view.h"
#include "comm/base/span.h"
#include "runtime/api/group.h"

namespace kolo {

/// The header of a message to a server. A push is followed by the elements, a request for rows by
/// their indices; the answer to the others is a `StoreVersion`, to a pull followed by the elements.
struct StoreRequest {
  enum class Kind : std::uint64_t {
    kPush,
    kPull,   ///< Answered once each worker has made `number` pushes of the key.
    kAwait,  ///< As a pull, without elements.
    kFence,  ///< Answered when the sender's earlier requests are done.
    kBye,    ///< The sender makes no more requests.
  };

  Kind kind = Kind::kPush;
  std::uint64_t key = 0;     ///< Hash of its name.
  std::uint64_t number = 0;  ///< Of a push: its number among those of its sender and key.
  std::uint64_t rows = 0;    ///< Number of indices that follow; 0: the pull is of all elements.
  std::uint64_t tag = 0;     ///< Names the sender's request.
  double rate = 1.0;         ///< Of a push, for the updater.
};

// Tags of messages in the store's group. A rank sends to itself, too, so what goes to a server and
// what comes from it differ.

constexpr std::uint64_t kRequestTag = 0;
constexpr std::uint64_t kInitTag = 1;  // No request is number 0.
constexpr std::uint64_t payload_tag(std::uint64_t request) { return 2 * request; }
constexpr std::uint64_t answer_tag(std::uint64_t request) { return 2 * request + 1; }

/// A message that is the bytes of this struct.
template <typename Struct>
BufferView bytes_of(Struct& message) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  return {const_cast<std::remove_const_t<Struct>*>(&message), sizeof message, DType::kUInt8};
}

/// Elements of a key on each rank: ranges of whole rows, in rank order. `hash` selects the server
/// of a key that is not shared out. Before: `servers` is ascending and not empty. Pure.
inline std::vector<std::size_t> shard_counts(std::size_t rows, std::size_t row_width,
                                             bool is_shared, std::uint64_t hash,
                                             Span<const int> servers, int ranks) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks));
  if (!is_shared) {
    counts[static_cast<std::size_t>(servers[hash % servers.size()])] = rows * row_width;
    return counts;
  }
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const std::size_t begin = rows * i / servers.size(), end = rows * (i + 1) / servers.size();
    counts[static_cast<std::size_t>(servers[i])] = (end - begin) * row_width;
  }
  return counts;
}

/// Sends copies, and keeps them until they have left. Threads: one at a time.
class Outbox {
 public:
  /// `group` outlives it.
  explicit Outbox(Group& group) : group_(group) {}

  /// Waits until `bytes` and those on their way are at most `most`, or these are all. Header and
  /// payload get room together: a server that has a header waits for its payload.
  void make_room(std::size_t bytes, std::size_t most) {
    drop_done();
    for (const Sent& each : sent_) bytes += each.bytes;
    for (; !sent_.empty() && bytes > most; sent_.pop_front()) {
      sent_.front().ticket.wait();
      bytes -= sent_.front().bytes;
    }
  }
  /// Does not wait.
  void send(const ConstBuffer& data, int peer, std::uint64_t tag) {
    drop_done();
    AlignedMemory copy = allocate_aligned(data.bytes());
    if (data.count > 0) std::memcpy(copy.get(), data.data, data.bytes());
    const BufferView view(copy.get(), data.count, data.dtype);
    sent_.push_back({std::move(copy), data.bytes(), group_.send(view, peer, tag)});
  }

 private:
  struct Sent {
    AlignedMemory memory;
    std::size_t bytes;
    Ticket ticket;
  };

  void drop_done() {
    std::erase_if(sent_, [](const Sent& each) { return each.ticket.done(); });
  }

  Group& group_;
  std::deque<Sent> sent_;
};

}  // namespace kolo
