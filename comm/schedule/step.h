#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kolo {

/// A part of a rank's memory that steps name. Offsets in kBucket, kUser and kInput are bucket
/// elements; in other regions a step decides which element is stored where. kPayload holds no
/// elements: its offsets are those of the encoded elements, contiguous in the order of
/// `Schedule::payloads`.
enum class Region : std::uint8_t {
  kBucket,   ///< Host: in the arena, for peers of the node to read and write. Device: private
             ///< device memory.
  kScratch,  ///< Private to the rank and the run; on the device for a device bucket.
  kUser,     ///< The caller's tensors, seen through the pack list of a bucket not in place.
  kInput,    ///< The tensors with the contribution to an out-of-place bucket, read only.
  kStaging,  ///< Host: slots in the arena, for peers of the node to read and write. Device: private
             ///< pinned host memory that the network reads and writes.
  kPayload,  ///< Host: payloads of the bucket's codec, private to the rank and the run.
  kExposedInput,   ///< Host: what a rank contributes, for peers of the node to read: see
                   ///< exposed_buffer.h.
  kExposedResult,  ///< Host: where a rank wants a result, for peers of the node to write: see
                   ///< exposed_buffer.h.
};

/// `count` elements at `offset` of a region of `rank`'s memory.
struct Range {
  int rank = 0;
  Region region = Region::kBucket;
  std::size_t offset = 0;
  std::size_t count = 0;
  std::size_t slot = 0;  ///< kExposedInput and kExposedResult only: offset of its slot in kStaging.

  std::size_t end() const { return offset + count; }
  bool overlaps(const Range& other) const {
    return rank == other.rank && region == other.region && count > 0 && other.count > 0 &&
           offset < other.end() && other.offset < end();
  }
  friend bool operator==(const Range&, const Range&) = default;
};

/// How a step uses a range, or how the peer that receives access to the range will use it.
enum class Access : std::uint8_t { kRead, kWrite };

enum class StepKind : std::uint8_t {
  kSend,    ///< sources[0] to `peer`, as its message number `ordinal` from this rank.
  kRecv,    ///< Message number `ordinal` from `peer` into `target`.
  kSignal,  ///< Raises flag `ordinal` at `peer`.
  kAwait,   ///< Waits for flag `ordinal` from `peer`; see `Step::lag`.
  kReduce,  ///< target = sources[0] op sources[1] op ..., in this order.
  kCopy,    ///< target = sources[0], between kBucket, kScratch and kStaging.
  kPack,    ///< target = sources[0] (user or input), cast; or exposes these elements; or puts them
            ///< where a peer wants them.
  kUnpack,  ///< target (user) = sources[0] (possibly a peer's), cast; or = sources[0] (input); or
            ///< sources[0] are the same elements, exposed, and a peer has put them there.
  kExpose,  ///< Exposes `target` (exposed) to a peer.
  kExchange,  ///< mirrors[0] (user) = sources[0], a slot; and then target, the same slot, =
              ///< sources[1] (user or input). Both at once, for what is in the slot is in the
              ///< cache.
  kNative,    ///< One collective of the device's own library among `group`; see NativeOp.
  kCodec,     ///< One verb of a host bucket's codec; see CodecVerb.
};

/// The verb of a kCodec step; see `Codec`. Sources and targets are payloads; operands called
/// elements are ranges of kBucket or kUser.
enum class CodecVerb : std::uint8_t {
  kFold,     ///< sources[0] = target; both are elements.
  kEncode,   ///< target = sources[0]; the source is elements.
  kMerge,    ///< target = the sum of the sources, in ascending order of contributions.
  kDecode,   ///< target = the sources, end to end; the target is elements.
  kInspect,  ///< Reads sources[0], which is elements.
  kJoin,     ///< target, a single payload, = the sources, end to end. Needs no codec.
  kPart,     ///< The reverse of kJoin.
};

/// The collective of a kNative step. The first two are in place in the bucket, with p equal parts
/// for p ranks. The last three work on one or more tensors, each with one range per rank, in rank
/// order; ranges may be empty. All but the first two also work in the caller's tensors.
enum class NativeOp : std::uint8_t {
  kReduceScatter,  ///< sources[0] = the whole; target = this rank's part, combined.
  kAllGather,      ///< sources[0] = this rank's part; target = the whole.
  kAllReduce,      ///< sources[0] = the whole; target = the same, or as much elsewhere.
  kReduceParts,    ///< sources = each tensor's parts, side by side; mirrors = this rank's part of
                   ///< each, combined.
  kGatherParts,    ///< The reverse: sources = this rank's part of each; mirrors = each one's parts.
  kExchange,       ///< sources = what each rank gets of this one; mirrors = what it gets of each.
};

/// Whether the operation has a range for each rank.
constexpr bool has_parts(NativeOp op) { return op >= NativeOp::kReduceParts; }

/// The ranks that take part in a native step, in ascending order.
enum class NativeGroup : std::uint8_t { kNode, kWorld };

/// "bucket", "scratch", ...
std::string_view to_string(Region region);
/// "send", "recv", ...
std::string_view to_string(StepKind kind);

using StepId = std::uint32_t;

/// One line of a schedule. Steps run in any order that respects `after`.
struct Step {
  StepKind kind = StepKind::kCopy;
  int peer = -1;
  /// For a message or flag: its index between the two ranks. For a native step: its index in the
  /// order in which this rank launches native steps of this bucket, which is also its flag number:
  /// equal on all ranks of the node.
  std::uint32_t ordinal = 0;
  /// kAwait only: waits for the flag value of `lag` iterations earlier; in the first `lag`
  /// iterations it does not wait.
  std::uint32_t lag = 0;
  Range target = {};
  std::vector<Range> sources = {};
  /// kReduce of host buckets: further ranges, in memory of other ranks of the node, that get the
  /// same bytes as `target`. An output may be a source, element by element. See also kExchange and
  /// NativeOp.
  std::vector<Range> mirrors = {};
  /// kReduce, kDecode and combining kNative steps: this is the last operation on these elements, so
  /// it applies the scale (a native step averages).
  bool finishes = false;
  /// kPack that exposes: peers only unpack the exposed elements. kExpose: the peer only packs to
  /// it.
  bool for_copies = false;
  NativeOp native = NativeOp::kAllReduce;  ///< kNative only.
  NativeGroup group = NativeGroup::kNode;  ///< kNative only.
  CodecVerb verb = CodecVerb::kFold;       ///< kCodec only.
  std::vector<StepId> after = {};          ///< Steps of the same rank that must be complete first.
};

}  // namespace kolo
