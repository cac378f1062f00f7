#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/schedule/access_index.h"
#include "comm/schedule/exposed_buffer.h"
#include "comm/schedule/schedule.h"
#include "comm/schedule/step.h"

namespace kolo {

/// Limits how many chunks of a bucket are in flight between nodes. Chunk k is packed and sent after
/// chunk k - width has been received, and reuses its scratch memory. As a result, the first chunks
/// complete first, the network queue stays short, and scratch memory stays in the cache.
///
///   width 2     send 0   send 1   [0 received]   send 2   [1 received]   send 3   ...
///
/// In chunk k, a send to a peer waits for the last receive from this peer in chunk k - width. If
/// there is none, as along a ring, it waits for the last receive from any peer. Chunks wait only
/// for earlier chunks, so there is no deadlock.
///
/// Threads: one. Cost: one dependency per message.
class ChunkWindow {
 public:
  /// `width` is in chunks; 0 means no limit.
  explicit ChunkWindow(std::size_t width) : places_(width) {}

  /// Begins the next chunk, to which the following calls belong.
  void next_chunk();

  /// Return the step that packing, or a message to `peer`, must wait for, if any.
  std::optional<StepId> before_load() const { return former_.last; }
  std::optional<StepId> before_send(int peer) const;
  void received(int peer, StepId step);

  /// Returns the offset of `count` elements of scratch memory to reuse. The n-th call of a chunk
  /// returns the n-th block of the chunk one width earlier, or nothing if that block is too small.
  std::optional<std::size_t> reuse_scratch(std::size_t count);
  /// Adds new scratch memory to the chunk; the chunk one width later may reuse it.
  void add_scratch(std::size_t offset, std::size_t count);

 private:
  struct Block {
    std::size_t offset = 0;
    std::size_t count = 0;
  };
  struct Chunk {
    std::map<int, StepId> last_from = {};  ///< The last receive of the chunk, by peer.
    std::optional<StepId> last = {};
    std::vector<Block> scratch = {};
  };

  bool has_begun() const { return number_ > 0 && !places_.empty(); }
  Chunk& current() { return places_[(number_ - 1) % places_.size()]; }

  std::vector<Chunk> places_;  ///< Chunk number n is at index n modulo the width.
  Chunk former_;               ///< The chunk one width before the current chunk.
  std::size_t number_ = 0;     ///< Number of chunks begun.
};

/// Where `ScheduleBuilder::deliver` copies a result.
enum class Sink : std::uint8_t {
  kBucket,  ///< The bucket of this rank, for a later stage of the algorithm.
  kUser,    ///< The caller's tensors; for an in-place bucket, the bucket itself.
};

/// How messages of a device bucket reach the network; equal on all ranks.
struct DeviceMessages {
  /// The network accesses device memory directly, so no staging memory is used.
  bool are_direct = false;
  /// Elements of pinned staging memory per direction; at least two units of kWireAlignment bytes.
  std::size_t staging_count = 0;
};

/// Builds one rank's schedule, step by step, and derives the dependencies between its steps.
///
/// A step depends on every earlier step that accesses one of its ranges if one of the two writes.
/// An algorithm therefore states only operations, chunks of independent ranges overlap
/// automatically, and no dependency within a rank is missing. Between ranks, messages and flags
/// define the order. For a flag, the algorithm names the range whose access passes to the peer:
///
///   signal(p, r, kRead)    p may read r, which this rank wrote
///   signal(p, r, kWrite)   p may write r, which this rank has read
///   await(p, r)            waits for the peer's signal: p has written r, or has read it
///   await_previous(p, r)   as await, for the signal of the previous iteration (staging memory)
///
/// If results replace contributions (BucketLayout::replaces_inputs), a step that writes tensors
/// depends on all earlier steps that read contributions.
///
/// Empty ranges produce no step, neither on the sender nor on the receiver. A flag for an empty
/// range still gets a number, because all ranks of a node must number flags alike.
///
/// Messages of a device bucket pass through pinned memory (unless DeviceMessages::are_direct), in
/// pieces of at most half of it. Each direction has a ring of slots that are used in order. A slot
/// is reused when its previous use is complete; this dependency also follows from the ranges.
///
///   send   bucket -> slot 0 -> network         recv   network -> slot 0 -> bucket
///          bucket -> slot 1 -> network                network -> slot 1 -> bucket
///
/// (One ring for both directions could deadlock: sends that wait for their receiver could block the
/// slots that receives need.) Native steps run in the order in which they were added.
///
/// The verifier does not use this class; it checks the resulting schedule. Threads: one.
class ScheduleBuilder {
 public:
  /// `window` is the largest number of chunks of a host bucket in flight between nodes; 0 means no
  /// limit. See ChunkWindow.
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
  /// Begins the next chunk, to which the following steps belong.
  void next_chunk() { window_.next_chunk(); }

  /// Returns the range of this rank's results: in the bucket if it is in place, otherwise in the
  /// caller's tensors.
  Range home(std::size_t offset, std::size_t count) const;
  /// Returns the range of this rank's contributions: `home` unless the bucket is out of place.
  Range input(std::size_t offset, std::size_t count) const;
  /// Returns a range of scratch memory that no other step of this chunk uses.
  Range scratch(std::size_t count);
  /// Returns a new slot of a host bucket's staging memory. All ranks request the same slots in the
  /// same order, so a slot has the same offset on all ranks.
  Range staging(std::size_t count);

  /// Returns a new slot for an exposed buffer of up to `count` elements, including its note.
  Range exposure_slot(std::size_t count) {
    return staging(exposure_slot_count(count, layout().dtype));
  }
  /// Returns a range that stands for elements that `rank` contributes and exposes through `slot`. A
  /// signal that grants access to this range also grants access to the tensors.
  Range exposed_input(int rank, std::size_t offset, std::size_t count, const Range& slot) const {
    return {rank, Region::kExposedInput, offset, count, slot.offset};
  }
  /// Returns a range that stands for elements that `rank` receives and exposes through `slot`.
  Range exposed_result(int rank, std::size_t offset, std::size_t count, const Range& slot) const {
    return {rank, Region::kExposedResult, offset, count, slot.offset};
  }

  /// Returns a new payload that encodes `count` elements in at most `capacity` bytes. Consecutive
  /// payloads are adjacent, so one range can cover several. `usual` is the typical content.
  Range payload(std::size_t count, std::size_t capacity, const PayloadUse& usual);

  /// Sets the number of copies of a host bucket's staging memory; see Schedule::staging_turns.
  void set_staging_turns(std::uint32_t turns) { schedule_.staging_turns = turns; }
  /// Declares that native steps average over `ranks` ranks; see Schedule::averaged_ranks.
  void average_over(std::size_t ranks) { schedule_.averaged_ranks = ranks; }
  /// Reserves `count` flags, the largest number between any two ranks of this node.
  void reserve_flags(std::uint32_t count) {
    schedule_.flag_count = std::max(schedule_.flag_count, count);
  }
  /// Declares that no rank's schedule uses the bucket's memory. Before: the bucket is not in place.
  void forgo_bucket() { schedule_.has_bucket = false; }

  /// Copies this rank's contribution to `range` into its bucket; does nothing if it is in place.
  void load(const Range& range);
  /// Copies the finished `range` of a bucket to `sink`. The bucket may be a peer's.
  void deliver(const Range& range, Sink sink);
  /// Exposes this rank's contribution as `exposed`, a range of kExposedInput. `for_copies` is true
  /// if peers only copy it to their tensors.
  void expose_input(const Range& exposed, bool for_copies);
  /// Exposes the tensors of `exposed`, a range of kExposedResult, to a peer that writes this rank's
  /// results. After the peer's signal, call `move(home, exposed)`. `for_copies` is true if the peer
  /// only copies its contribution.
  void expose_result(const Range& exposed, bool for_copies);
  /// Copies, packs or unpacks, depending on the regions, after the step `earlier`, if given.
  void move(const Range& target, const Range& source, std::optional<StepId> earlier = std::nullopt);
  /// Unpacks `slot` to `target` and then packs `source` into `slot`, in one pass over the slot.
  void exchange(const Range& target, const Range& slot, const Range& source);

  /// Add one step each, or one per piece for a message of a device bucket. Errors: UsageError for a
  /// message of a device bucket with less than two units of staging memory.
  void send(int peer, const Range& source);
  void recv(int peer, const Range& target);
  void signal(int peer, const Range& range, Access access);
  void await(int peer, const Range& range);
  /// Waits for the previous iteration's flag, after which a copy of staging memory is free.
  void await_previous(int peer, const Range& range);
  void reduce(const Range& target, std::vector<Range> sources, bool finishes,
              std::vector<Range> mirrors = {});
  /// Adds one collective of the device library; device buckets only. `finishes`: see
  /// Step::finishes.
  void native(NativeOp op, NativeGroup group, const Range& target, const Range& source,
              bool finishes = false);
  /// Add a native collective with one range per tensor and rank of the group; see NativeOp. All
  /// ranks call them in the same order, including ranks whose ranges are all empty.
  void reduce_parts(std::vector<Range> targets, std::vector<Range> parts, bool finishes,
                    NativeGroup group = NativeGroup::kWorld);
  void gather_parts(std::vector<Range> sources, std::vector<Range> parts,
                    NativeGroup group = NativeGroup::kWorld);
  void exchange_parts(std::vector<Range> sent, std::vector<Range> received);

  /// Returns the range of pairs that a codec selects of elements in device memory.
  Range pairs(std::size_t offset, std::size_t count) const {
    return {rank(), Region::kPairs, offset, count};
  }
  /// Adds one verb of the bucket's codec. Payloads of no elements are left out.
  void codec(CodecVerb verb, const Range& target, const std::vector<Range>& sources);
  /// Decodes to this rank's bucket or `home`, or to `pairs` of a device bucket. `finishes`: see
  /// Step::finishes.
  void decode(const Range& target, const std::vector<Range>& sources, bool finishes);

  Schedule build() &&;

 private:
  /// The staging memory of one direction, in elements. Its slots are used in order.
  struct Ring {
    std::size_t begin = 0;
    std::size_t count = 0;
    std::size_t next = 0;
  };

  std::size_t unit() const;
  std::size_t rounded_up(std::size_t count) const;
  /// Divides `range` into pieces, one per message, and calls visit(piece, slot) for each.
  template <typename Visit>
  void for_each_slot(Ring& ring, const Range& range, Visit visit);
  Range next_slot(Ring& ring, std::size_t count);
  std::uint32_t next_awaited(int peer);
  void append_send(int peer, const Range& source);
  void append_recv(int peer, const Range& target);

  void append_native(Step step);
  void append_codec(Step step);
  /// Replaces each exposed range by the tensors and the slot that it stands for.
  std::vector<Range> with_exposed(const std::vector<Range>& ranges) const;
  void append(Step step, const std::vector<Range>& read, const std::vector<Range>& written);
  void depend(Step& step, const Range& range, Access access);

  Schedule schedule_;
  DeviceMessages messages_;
  bool is_staged_;  // whether messages pass through pinned memory
  Ring outgoing_, incoming_;
  ChunkWindow window_;
  std::optional<StepId> last_native_;
  std::uint32_t natives_ = 0;
  std::map<std::pair<int, Region>, AccessIndex> accesses_;
  std::map<int, std::uint32_t> sent_, received_, signalled_, awaited_;
};

}  // namespace kolo
