#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/schedule/loan.h"
#include "comm/schedule/schedule.h"
#include "comm/schedule/step.h"
#include "comm/schedule/touches.h"

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

/// Where the result of a collective goes.
enum class Sink : std::uint8_t {
  kBucket,  ///< This rank's bucket: a further stage works on it.
  kUser,    ///< The caller's tensors, which for an in-place bucket are the bucket.
};

/// How messages of a device bucket reach the network; equal on all ranks.
struct DeviceMessages {
  /// The network reads and writes device memory itself, so nothing is staged.
  bool are_direct = false;
  /// Elements of pinned memory for each direction; at least two units of kWireAlignment bytes.
  std::size_t staging_count = 0;
};

/// Writes one rank's schedule, line by line, and derives what must come first.
///
/// A step waits for every earlier line that touches one of its ranges where one of the two writes,
/// so an algorithm states only what it does, chunks of independent ranges overlap by themselves,
/// and a dependency cannot be forgotten within a rank. Between ranks order comes from messages and
/// flags; for a flag the algorithm says which range it hands over:
///
///   signal(p, r, kRead)    p may read r, which I wrote
///   signal(p, r, kWrite)   p may write r, which I have read
///   await(p, r)            the other end: p wrote r, or p has read it
///   await_previous(p, r)   the same, of the previous iteration: for staging memory in turns
///
/// Where results replace contributions, a step that writes tensors waits for all earlier ones that
/// read contributions.
///
/// Empty ranges yield no step, on both sides of a message alike; a flag keeps its number even so,
/// because ranks of a node must count equally many.
///
/// The messages of a device bucket go through pinned memory, in pieces of at most half of it. Each
/// direction has a ring of its own whose slots are handed out in turn: a slot is used again when
/// its former use is complete, which follows from the ranges as everything else does.
///
///   send   bucket -> slot 0 -> network         recv   network -> slot 0 -> bucket
///          bucket -> slot 1 -> network                network -> slot 1 -> bucket
///
/// (One ring for both would wait in a circle: sends that last until they are received, behind
/// receives that need their slots.) Native steps follow each other in the order of their lines.
///
/// The verifier does not know this class; it judges the result. Threads: one.
class ScheduleBuilder {
 public:
  /// `window`: chunks of a host bucket in flight between nodes; 0: all. See ChunkWindow.
  ScheduleBuilder(int rank, std::string algorithm, BucketLayout layout,
                  DeviceMessages messages = {}, std::size_t window = 0);

  int rank() const { return schedule_.rank; }
  const BucketLayout& layout() const { return schedule_.layout; }

  Range bucket(std::size_t offset, std::size_t count) const {
    return bucket_of(rank(), offset, count);
  }
  Range bucket_of(int rank, std::size_t offset, std::size_t count) const {
    return {rank, Region::kBucket, offset, count};
  }
  /// The lines that follow belong to a further chunk.
  void next_chunk() { window_.next_chunk(); }

  /// Where this rank's results go: the bucket if it is in place, else the caller's tensors.
  Range home(std::size_t offset, std::size_t count) const;
  /// Where its contributions come from: the same, unless the bucket is out of place.
  Range input(std::size_t offset, std::size_t count) const;
  /// A range of scratch memory that no other line of this chunk has.
  Range scratch(std::size_t count);
  /// A new slot of a host bucket's staging memory. All ranks ask for the same slots in the same
  /// order, so that a slot has one offset on all of them.
  Range staging(std::size_t count);

  /// A slot for up to `count` elements that are lent or offered; as `staging`, beginning with the
  /// note.
  Range loan_slot(std::size_t count) { return staging(loan_slot_count(count, layout().dtype)); }
  /// Elements that `rank` contributes, lent by a slot that begins as `slot` does. What hands them
  /// over hands over the tensors, too.
  Range lent(int rank, std::size_t offset, std::size_t count, const Range& slot) const {
    return {rank, Region::kLent, offset, count, slot.offset};
  }
  /// The same of elements that `rank` receives, offered.
  Range offered(int rank, std::size_t offset, std::size_t count, const Range& slot) const {
    return {rank, Region::kOffered, offset, count, slot.offset};
  }

  /// A new payload that stands for `count` elements and takes at most `capacity` bytes. One made
  /// after another stands beside it: a range over both names both. `usual`: what it holds as a
  /// rule.
  Range payload(std::size_t count, std::size_t capacity, const PayloadUse& usual);

  /// How often the staging memory of a host bucket exists; see Schedule::staging_turns.
  void set_staging_turns(std::uint32_t turns) { schedule_.staging_turns = turns; }
  /// Ranks of this node use as many flags between each other, where there are most.
  void reserve_flags(std::uint32_t count) {
    schedule_.flag_count = std::max(schedule_.flag_count, count);
  }
  /// No rank's steps touch the bucket, which is not in place.
  void forgo_bucket() { schedule_.has_bucket = false; }

  /// Makes this rank's contribution to `range` present in its bucket (packs, unless in place).
  void load(const Range& range);
  /// Brings the finished `range`, which lies in its rank's bucket, to `sink`.
  void deliver(const Range& range, Sink sink);
  /// Lends this rank's contribution to `lent`, a range of kLent. `for_copies`: peers only move it
  /// to their tensors.
  void lend(const Range& lent, bool for_copies);
  /// Offers the tensors of `offered`, a range of kOffered, to a peer that writes this rank's
  /// results there. Once they are in it, `move` to `home`. `for_copies`: the peer only moves its
  /// contribution there.
  void offer(const Range& offered, bool for_copies);
  /// Copies, packs or unpacks, whichever the regions ask for; after `earlier`, if there is one.
  void move(const Range& target, const Range& source, std::optional<StepId> earlier = std::nullopt);
  /// Unpacks `slot` to `target`, and packs `source` into it: a pass over the slot instead of two.
  void exchange(const Range& target, const Range& slot, const Range& source);

  /// Errors: UsageError for a message of a device bucket if there are less than two units of
  /// staging memory.
  void send(int peer, const Range& source);
  void recv(int peer, const Range& target);
  void signal(int peer, const Range& range, Access access);
  void await(int peer, const Range& range);
  /// Until this flag comes, the iteration is not over: then the turn of the previous one is free.
  void await_previous(int peer, const Range& range);
  void reduce(const Range& target, std::vector<Range> sources, bool finishes,
              std::vector<Range> mirrors = {});
  /// Device buckets only: one collective of the device's own library. `finishes` as for a
  /// reduction.
  void native(NativeOp op, NativeGroup group, const Range& target, const Range& source,
              bool finishes = false);
  /// The same of all ranks with a range for each, and that for each tensor: see NativeOp. All call
  /// it alike, even those with nothing to do in it.
  void reduce_parts(std::vector<Range> targets, std::vector<Range> parts, bool finishes);
  void gather_parts(std::vector<Range> sources, std::vector<Range> parts);
  void exchange_parts(std::vector<Range> sent, std::vector<Range> received);

  /// Host buckets only: one verb of the bucket's codec. Payloads with nothing to stand for are left
  /// out.
  void codec(CodecVerb verb, const Range& target, const std::vector<Range>& sources);
  /// `decode` into this rank's home of the elements, or its bucket; `finishes` as for a reduction.
  void decode(const Range& target, const std::vector<Range>& sources, bool finishes);

  Schedule build() &&;

 private:
  /// Staging memory of one direction; slots are handed out in turn.
  struct Ring {
    std::size_t begin = 0;
    std::size_t count = 0;
    std::size_t next = 0;
  };

  std::size_t unit() const;
  std::size_t rounded_up(std::size_t count) const;
  /// Calls visit(piece, slot) for each piece of `range` that makes one message.
  template <typename Visit>
  void for_each_slot(Ring& ring, const Range& range, Visit visit);
  Range next_slot(Ring& ring, std::size_t count);
  std::uint32_t next_awaited(int peer);
  void append_send(int peer, const Range& source);
  void append_recv(int peer, const Range& target);

  void append_native(Step step);
  void append_codec(Step step);
  /// What is lent or offered in `ranges` gives way to what it stands for.
  std::vector<Range> with_loans(const std::vector<Range>& ranges) const;
  void append(Step step, const std::vector<Range>& read, const std::vector<Range>& written);
  void depend(Step& step, const Range& range, Access access);

  Schedule schedule_;
  DeviceMessages messages_;
  bool is_staged_;  // messages are
  Ring outgoing_, incoming_;
  ChunkWindow window_;
  std::optional<StepId> last_native_;
  std::uint32_t natives_ = 0;
  std::map<std::pair<int, Region>, Touches> touched_;
  std::map<int, std::uint32_t> sent_, received_, signalled_, awaited_;
};

}  // namespace kolo
