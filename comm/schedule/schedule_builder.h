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

/// Limits how much of a schedule is in flight between nodes: chunk k is packed and sent once chunk
/// k - width has been received, and reuses the scratch memory of that chunk. So the first chunks
/// complete first, the network holds no more than keeps it busy, and scratch memory stays in the
/// cache.
///
///   width 2     send 0   send 1   [0 received]   send 2   [1 received]   send 3   ...
///
/// A send to a peer waits for a receive from the same peer, or along a ring for the last receive
/// from any peer: peers may be at different chunks, but no peer is behind by more than the width.
/// Chunks wait only for earlier ones, so there is no deadlock.
///
/// Threads: one. Cost: one dependency per message.
class ChunkWindow {
 public:
  /// `width` 0: no limit.
  explicit ChunkWindow(std::size_t width) : places_(width) {}

  /// The following calls belong to the next chunk.
  void next_chunk();

  /// The step that packing, or a message to `peer`, has to wait for, if any.
  std::optional<StepId> before_load() const { return former_.last; }
  std::optional<StepId> before_send(int peer) const;
  void received(int peer, StepId step);

  /// Scratch memory to reuse: the offset of `count` elements that the chunk one width ago had at
  /// this place of its list, if it had that many.
  std::optional<std::size_t> reuse_scratch(std::size_t count);
  /// Notes new memory, to be reused by the chunk one width ahead.
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
  Chunk former_;               ///< The previous chunk at the current chunk's place.
  std::size_t number_ = 0;     ///< Number of chunks begun.
};

/// Destination of the result of a collective.
enum class Sink : std::uint8_t {
  kBucket,  ///< This rank's bucket, for a further stage.
  kUser,    ///< The caller's tensors; for an in-place bucket, the bucket itself.
};

/// How messages of a device bucket reach the network; equal on all ranks.
struct DeviceMessages {
  /// The network accesses device memory directly, so nothing is staged.
  bool are_direct = false;
  /// Elements of pinned memory per direction; at least two units of kWireAlignment bytes.
  std::size_t staging_count = 0;
};

/// Writes one rank's schedule, line by line, and derives the dependencies between steps.
///
/// A step waits for every earlier line that touches one of its ranges if one of the two writes. So
/// an algorithm states only its operations, chunks of independent ranges overlap automatically, and
/// no dependency within a rank can be forgotten. Between ranks, order comes from messages and
/// flags; for a flag the algorithm says which range it hands over:
///
///   signal(p, r, kRead)    p may read r, which I wrote
///   signal(p, r, kWrite)   p may write r, which I have read
///   await(p, r)            the other end: p wrote r, or p has read it
///   await_previous(p, r)   as await, for the previous iteration: for staging memory in turns
///
/// If results replace contributions, a step that writes tensors waits for all earlier ones that
/// read contributions.
///
/// Empty ranges produce no step, on both sides of a message alike; a flag for an empty range still
/// takes a number, because all ranks of a node must count flags alike.
///
/// The messages of a device bucket go through pinned memory, in pieces of at most half of it. Each
/// direction has a ring of slots that are used in turn. A slot is reused when its previous use is
/// complete, which follows from the ranges like all dependencies.
///
///   send   bucket -> slot 0 -> network         recv   network -> slot 0 -> bucket
///          bucket -> slot 1 -> network                network -> slot 1 -> bucket
///
/// (One ring for both directions could deadlock: sends that last until they are received would wait
/// behind receives that need their slots.) Native steps follow each other in the order of their
/// lines.
///
/// The verifier does not use this class; it judges the resulting schedule. Threads: one.
class ScheduleBuilder {
 public:
  /// `window`: chunks of a host bucket in flight between nodes; 0: no limit. See ChunkWindow.
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
  /// The following lines belong to the next chunk.
  void next_chunk() { window_.next_chunk(); }

  /// The range of this rank's results: in the bucket if it is in place, otherwise in the caller's
  /// tensors.
  Range home(std::size_t offset, std::size_t count) const;
  /// The range of this rank's contributions: equal to `home` unless the bucket is out of place.
  Range input(std::size_t offset, std::size_t count) const;
  /// A range of scratch memory that no other line of this chunk uses.
  Range scratch(std::size_t count);
  /// A new slot of a host bucket's staging memory. All ranks ask for the same slots in the same
  /// order, so a slot has the same offset on all of them.
  Range staging(std::size_t count);

  /// A slot for an exposed buffer of up to `count` elements; as `staging`, with room for the note
  /// at its start.
  Range exposure_slot(std::size_t count) {
    return staging(exposure_slot_count(count, layout().dtype));
  }
  /// Elements that `rank` contributes, exposed through a slot that begins where `slot` does. A step
  /// that hands them over also hands over the tensors.
  Range exposed_input(int rank, std::size_t offset, std::size_t count, const Range& slot) const {
    return {rank, Region::kExposedInput, offset, count, slot.offset};
  }
  /// As `exposed`, for exposed elements that `rank` receives.
  Range exposed_result(int rank, std::size_t offset, std::size_t count, const Range& slot) const {
    return {rank, Region::kExposedResult, offset, count, slot.offset};
  }

  /// A new payload that encodes `count` elements in at most `capacity` bytes. Payloads made in
  /// sequence are adjacent, so one range can cover several. `usual`: its typical content.
  Range payload(std::size_t count, std::size_t capacity, const PayloadUse& usual);

  /// Sets the number of copies of a host bucket's staging memory; see Schedule::staging_turns.
  void set_staging_turns(std::uint32_t turns) { schedule_.staging_turns = turns; }
  /// Reserves `count` flags, the maximum between any two ranks of this node.
  void reserve_flags(std::uint32_t count) {
    schedule_.flag_count = std::max(schedule_.flag_count, count);
  }
  /// Declares that no rank's steps use the bucket, which is not in place.
  void forgo_bucket() { schedule_.has_bucket = false; }

  /// Copies this rank's contribution to `range` into its bucket (packs, unless in place).
  void load(const Range& range);
  /// Copies the finished `range`, which lies in its rank's bucket, to `sink`.
  void deliver(const Range& range, Sink sink);
  /// Exposes this rank's contribution as `exposed`, a range of kExposedInput. `for_copies`: peers
  /// only copy it to their tensors.
  void expose_input(const Range& exposed, bool for_copies);
  /// Exposes the tensors of `exposed`, a range of kExposedResult, to a peer that writes this rank's
  /// results there. Afterwards `move` them to `home`. `for_copies`: the peer only copies its
  /// contribution there.
  void expose_result(const Range& exposed, bool for_copies);
  /// Copies, packs or unpacks, depending on the regions; runs after `earlier`, if given.
  void move(const Range& target, const Range& source, std::optional<StepId> earlier = std::nullopt);
  /// Unpacks `slot` to `target` and packs `source` into the slot, in one pass instead of two.
  void exchange(const Range& target, const Range& slot, const Range& source);

  /// Errors: UsageError for a message of a device bucket with less than two units of staging
  /// memory.
  void send(int peer, const Range& source);
  void recv(int peer, const Range& target);
  void signal(int peer, const Range& range, Access access);
  void await(int peer, const Range& range);
  /// Waits for the flag of the previous iteration, whose turn of staging memory is then free.
  void await_previous(int peer, const Range& range);
  void reduce(const Range& target, std::vector<Range> sources, bool finishes,
              std::vector<Range> mirrors = {});
  /// Device buckets only: one collective of the device's native library. `finishes` as for a
  /// reduction.
  void native(NativeOp op, NativeGroup group, const Range& target, const Range& source,
              bool finishes = false);
  /// Native collectives of all ranks, with one range per tensor and rank: see NativeOp. All ranks
  /// call them alike, even ranks that have nothing to do.
  void reduce_parts(std::vector<Range> targets, std::vector<Range> parts, bool finishes);
  void gather_parts(std::vector<Range> sources, std::vector<Range> parts);
  void exchange_parts(std::vector<Range> sent, std::vector<Range> received);

  /// Host buckets only: one verb of the bucket's codec. Payloads of no elements are left out.
  void codec(CodecVerb verb, const Range& target, const std::vector<Range>& sources);
  /// Decodes into this rank's home of the elements, or its bucket; `finishes` as for a reduction.
  void decode(const Range& target, const std::vector<Range>& sources, bool finishes);

  Schedule build() &&;

 private:
  /// Staging memory of one direction; slots are used in turn.
  struct Ring {
    std::size_t begin = 0;
    std::size_t count = 0;
    std::size_t next = 0;
  };

  std::size_t unit() const;
  std::size_t rounded_up(std::size_t count) const;
  /// Calls visit(piece, slot) for each piece of `range`, which makes one message.
  template <typename Visit>
  void for_each_slot(Ring& ring, const Range& range, Visit visit);
  Range next_slot(Ring& ring, std::size_t count);
  std::uint32_t next_awaited(int peer);
  void append_send(int peer, const Range& source);
  void append_recv(int peer, const Range& target);

  void append_native(Step step);
  void append_codec(Step step);
  /// Replaces exposed buffers in `ranges` by the memory that they stand for.
  std::vector<Range> with_exposed(const std::vector<Range>& ranges) const;
  void append(Step step, const std::vector<Range>& read, const std::vector<Range>& written);
  void depend(Step& step, const Range& range, Access access);

  Schedule schedule_;
  DeviceMessages messages_;
  bool is_staged_;  // whether messages are staged
  Ring outgoing_, incoming_;
  ChunkWindow window_;
  std::optional<StepId> last_native_;
  std::uint32_t natives_ = 0;
  std::map<std::pair<int, Region>, AccessIndex> accesses_;
  std::map<int, std::uint32_t> sent_, received_, signalled_, awaited_;
};

}  // namespace kolo
