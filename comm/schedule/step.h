#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kolo {

/// The parts of a rank's memory that steps access. In kBucket, kUser, kInput and the exposed
/// regions, an offset is the index of a bucket element. In kScratch and kStaging, the steps decide
/// which element is stored at an offset. In kPayload, an offset is the index of an encoded element;
/// payloads are contiguous in the order of `Schedule::payloads`. In kPairs, it is the index of the
/// bucket element that is selected or not.
enum class Region : std::uint8_t {
  kBucket,   ///< Host: in the arena, which peers of the node read and write. Device: device memory.
  kScratch,  ///< Temporary memory of one rank and one bucket; on the device for a device bucket.
  kUser,     ///< The caller's tensors with the results of a bucket that is not in place.
  kInput,    ///< The caller's tensors with the contributions to an out-of-place bucket; read only.
  kStaging,  ///< Host: slots in the arena, readable and writable by peers of the node. Device:
             ///< private pinned host memory that the network reads and writes.
  kPayload,  ///< Payloads of the bucket's codec, in host memory, private to one rank and one
             ///< bucket.
  kPairs,    ///< Device: what the codec selects of elements, in its own pinned memory.
  kExposedInput,   ///< Host: contributions that peers of the node may read; see ExposedBuffer.
  kExposedResult,  ///< Host: results that peers of the node may write; see ExposedBuffer.
};

/// The elements [offset, offset + count) of a region of `rank`'s memory.
struct Range {
  int rank = 0;
  Region region = Region::kBucket;
  std::size_t offset = 0;
  std::size_t count = 0;
  /// Offset of the slot in kStaging; used by kExposedInput and kExposedResult only.
  std::size_t slot = 0;

  std::size_t end() const { return offset + count; }
  bool overlaps(const Range& other) const {
    return rank == other.rank && region == other.region && count > 0 && other.count > 0 &&
           offset < other.end() && other.offset < end();
  }
  friend bool operator==(const Range&, const Range&) = default;
};

/// How a step uses a range. In a signal: how the peer may use it.
enum class Access : std::uint8_t { kRead, kWrite };

enum class StepKind : std::uint8_t {
  kSend,      ///< Sends sources[0] to `peer` as message number `ordinal`.
  kRecv,      ///< Receives message number `ordinal` from `peer` into `target`.
  kSignal,    ///< Raises flag `ordinal` at `peer`.
  kAwait,     ///< Waits for flag `ordinal` from `peer`; see `Step::lag`.
  kReduce,    ///< Reduces: target = sources[0] op sources[1] op ..., in this order.
  kCopy,      ///< Copies sources[0] to target without a cast.
  kPack,      ///< Casts sources[0] (kUser or kInput) to target. If target is in kExposedInput,
              ///< exposes these elements; if it is in kExposedResult, writes to the peer's memory.
  kUnpack,    ///< Casts sources[0], possibly a peer's, to target (kUser). If sources[0] is this
              ///< rank's kExposedResult, completes the result that a peer has written.
  kExpose,    ///< Exposes `target`, a range of kExposedResult, to a peer.
  kExchange,  ///< Copies sources[0], a slot, to mirrors[0] (kUser), then sources[1] (kUser or
              ///< kInput) to target, the same slot, while it is in the cache.
  kNative,    ///< Runs one collective of the device library in `group`; see NativeOp.
  kCodec,     ///< Runs one verb of the bucket's codec; see CodecVerb.
};

/// The verbs of kCodec steps; see `Codec`. Sources and targets are payloads unless they are called
/// elements, which are ranges of kBucket or kUser, or pairs, which are ranges of kPairs; a codec
/// may also have codes and sums of all elements there. In a device bucket, the processor works on
/// pairs instead of elements: kEncode reads pairs and kDecode writes them. The verbs that work on
/// elements run on the device.
enum class CodecVerb : std::uint8_t {
  kFold,     ///< Updates elements in place: sources[0] = target.
  kSelect,   ///< Selects pairs of sources[0], which is elements, for target. Device buckets only.
  kEncode,   ///< Encodes sources[0], which is elements, to target.
  kMerge,    ///< Sums the sources, in ascending order of ranks, to target.
  kRefine,   ///< Encodes sources[0], which is elements, to target, by the concatenated sums in the
             ///< other sources, which are complete.
  kDecode,   ///< Decodes the concatenated sources to target, which is elements.
  kScatter,  ///< Writes sources[0], which is pairs, to target, which is elements: an element
             ///< without a pair becomes zero. Device buckets only.
  kInspect,  ///< Reads sources[0], which is elements.
};

/// Whether the verb works on elements in a device bucket, so that it runs on the device.
constexpr bool works_on_elements(CodecVerb verb) {
  return verb == CodecVerb::kFold || verb == CodecVerb::kSelect || verb == CodecVerb::kScatter ||
         verb == CodecVerb::kInspect;
}

/// The collectives of kNative steps. kReduceScatter and kAllGather work in place in the bucket,
/// with p equal parts for p ranks. The last three work on one or more tensors, each with one range
/// per rank, in ascending order of ranks; ranges may be empty. All except kReduceScatter and
/// kAllGather also work in the caller's tensors.
enum class NativeOp : std::uint8_t {
  kReduceScatter,  ///< sources[0] = the whole buffer; target = this rank's reduced part.
  kAllGather,      ///< sources[0] = this rank's part; target = the whole buffer.
  kAllReduce,      ///< sources[0] = the buffer; target = the reduced buffer, in place or elsewhere.
  kReduceParts,    ///< sources = all parts, by tensor; mirrors = this rank's reduced parts.
  kGatherParts,    ///< sources = this rank's part of each tensor; mirrors = all parts, by tensor.
  kExchange,       ///< sources[r] is sent to rank r; mirrors[r] is received from rank r.
};

/// Whether the collective has a range for each rank.
constexpr bool has_parts(NativeOp op) { return op >= NativeOp::kReduceParts; }

/// The ranks of a native step, in ascending order: the ranks of this node, or all ranks.
enum class NativeGroup : std::uint8_t { kNode, kWorld };

/// Returns "bucket", "scratch", ...
std::string_view to_string(Region region);
/// Returns "send", "recv", ...
std::string_view to_string(StepKind kind);

using StepId = std::uint32_t;

/// One entry of a schedule. Steps run in any order that respects `after`.
struct Step {
  StepKind kind = StepKind::kCopy;
  int peer = -1;
  /// A message or flag has its index among the messages or flags between the two ranks. A native
  /// step has its index in the order in which this rank launches native steps of this bucket; this
  /// index is also the number of the step's flag, and is equal on all ranks of the node.
  std::uint32_t ordinal = 0;
  /// kAwait only: the step waits for the flag value of `lag` iterations earlier. In the first `lag`
  /// iterations of the bucket it does not wait.
  std::uint32_t lag = 0;
  Range target = {};
  std::vector<Range> sources = {};
  /// kReduce of host buckets: further ranges, in memory of other ranks of the node, to which the
  /// same bytes are written as to `target`. An output may be equal to a source, but must not
  /// overlap a source partly. kExchange and NativeOp use mirrors differently.
  std::vector<Range> mirrors = {};
  /// This step applies the scale, as far as no native step has averaged (Schedule::averaged_ranks);
  /// a native step averages over its group. Used by kReduce, kDecode and kNative steps that reduce.
  bool finishes = false;
  /// kPack to kExposedInput: peers only unpack the exposed elements. kExpose: the peer only packs
  /// to the exposed elements.
  bool for_copies = false;
  NativeOp native = NativeOp::kAllReduce;  ///< kNative only.
  NativeGroup group = NativeGroup::kNode;  ///< kNative only.
  CodecVerb verb = CodecVerb::kFold;       ///< kCodec only.
  std::vector<StepId> after = {};          ///< Steps of this rank that must be complete first.
};

}  // namespace kolo
