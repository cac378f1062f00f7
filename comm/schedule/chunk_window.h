#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "comm/schedule/step.h"

namespace kolo {

/// Bounds what is in flight between nodes in a schedule: chunk k is packed and sent when chunk
/// k - width has been received, and works in the scratch memory of that chunk. So the first chunks
/// are done first, the network holds no more than keeps it busy, and scratch memory stays in the
/// cache.
///
///   width 2     send 0   send 1   [0 is here]   send 2   [1 is here]   send 3   ...
///
/// A send to a peer waits for a receive from the same peer, or, along a ring, for the last receive
/// from any: peers may be at different chunks, but none is behind by more than the width.
/// Chunks wait for earlier ones only, so nothing waits in a circle.
///
/// Threads: one. Cost: one dependency per message.
class ChunkWindow {
 public:
  /// 0: no bound.
  explicit ChunkWindow(std::size_t width) : places_(width) {}

  /// The calls that follow belong to a further chunk.
  void next_chunk();

  /// The step that packing, or a message to `peer`, has to wait for, if there is one.
  std::optional<StepId> before_load() const { return former_.last; }
  std::optional<StepId> before_send(int peer) const;
  void received(int peer, StepId step);

  /// Scratch memory: the offset of `count` elements that the chunk one width ago had at this place
  /// of its list, if there were as many.
  std::optional<std::size_t> reuse_scratch(std::size_t count);
  /// Takes note of new memory, for the chunk one width ahead.
  void add_scratch(std::size_t offset, std::size_t count);

 private:
  struct Block {
    std::size_t offset = 0;
    std::size_t count = 0;
  };
  struct Chunk {
    std::map<int, StepId> last_from = {};  ///< By peer.
    std::optional<StepId> last = {};
    std::vector<Block> scratch = {};
  };

  bool has_begun() const { return number_ > 0 && !places_.empty(); }
  Chunk& current() { return places_[(number_ - 1) % places_.size()]; }

  std::vector<Chunk> places_;  ///< A chunk's place is its number modulo the width.
  Chunk former_;               ///< The chunk that was at the current one's place.
  std::size_t number_ = 0;     ///< Chunks begun.
};

}  // namespace kolo
