#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "comm/base/buffer_view.h"
#include "comm/base/reduction.h"
#include "comm/base/value_table.h"
#include "comm/schedule/collective_spec.h"
#include "runtime/calls/row_sums/row_sums.h"

namespace kolo::bench {

/// The memory of a case's tensors. User memory is private memory of the caller, not in the arena.
enum class Home { kArena, kUser, kDevice, kDeviceUser };

inline constexpr std::array kAllHomes = {Home::kArena, Home::kUser, Home::kDevice,
                                         Home::kDeviceUser};

constexpr std::string_view to_string(Home home) {
  constexpr std::array<std::string_view, kAllHomes.size()> kNames = {"arena", "user", "device",
                                                                     "device-user"};
  return kNames[static_cast<std::size_t>(home)];
}

constexpr bool in_arena(Home home) { return home == Home::kArena || home == Home::kDevice; }

constexpr MemoryKind memory_kind(Home home) {
  return home == Home::kArena || home == Home::kUser ? MemoryKind::kHost : MemoryKind::kDevice;
}

/// Returns the home in the same kind of memory (host or device) but outside the arena.
constexpr Home without_arena(Home home) {
  return memory_kind(home) == MemoryKind::kHost ? Home::kUser : Home::kDeviceUser;
}

/// The collectives that a case can measure. Each is named as its command.
enum class Verb {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kGather,
  kScatter,
  kAllToAll,
  kBroadcast,
  kSendRecv,
  kSparseRows,  ///< An all-reduce of a table. Each rank passes some of its rows.
};

/// The properties of a verb that commands, checks and peers use.
struct VerbTraits {
  Verb value;
  /// The collective that is called. All parts are equally large, and rank 0 is the root.
  CollectiveKind kind = CollectiveKind::kOther;
  /// The name of a verb that makes several calls. Such a verb is measured in one placement only.
  /// Empty: the verb is named as its collective.
  std::string_view name = {};
  /// True if the verb is measured in place by default.
  bool in_place = false;
  /// True if a lower bound or a reference exists for moving its bytes.
  bool has_references = true;
};

/// One row per verb, in the order of the enumeration.
inline constexpr VerbTraits kVerbTraits[] = {
    {.value = Verb::kAllReduce, .kind = CollectiveKind::kAllReduce, .in_place = true},
    {.value = Verb::kReduce, .kind = CollectiveKind::kReduce},
    {.value = Verb::kReduceScatter, .kind = CollectiveKind::kReduceScatter},
    {.value = Verb::kAllGather, .kind = CollectiveKind::kAllGather},
    {.value = Verb::kGather, .kind = CollectiveKind::kGather},
    {.value = Verb::kScatter, .kind = CollectiveKind::kScatter},
    {.value = Verb::kAllToAll, .kind = CollectiveKind::kAllToAll},
    {.value = Verb::kBroadcast, .kind = CollectiveKind::kBroadcast, .in_place = true},
    {.value = Verb::kSendRecv, .name = "send-recv", .has_references = false},
    {.value = Verb::kSparseRows,
     .kind = CollectiveKind::kAllReduce,
     .name = "sparse-rows",
     .has_references = false},
};
static_assert(is_in_order<kVerbTraits>());
inline constexpr auto kAllVerbs = values_where<kVerbTraits, is_value<Verb>>();

constexpr const VerbTraits& traits_of(Verb verb) {
  return kVerbTraits[static_cast<std::size_t>(verb)];
}
constexpr bool has_other_place(Verb verb) { return traits_of(verb).name.empty(); }
constexpr std::string_view to_string(Verb verb) {
  const VerbTraits& traits = traits_of(verb);
  return has_other_place(verb) ? traits_of(traits.kind).names[0] : traits.name;
}
constexpr bool reduces(Verb verb) { return reduces(traits_of(verb).kind); }
constexpr bool has_parts(Verb verb) { return has_parts(traits_of(verb).kind); }
constexpr bool has_root(Verb verb) { return has_root(traits_of(verb).kind); }

/// Returns the factor for the contributions of `rank` to premultiplied sums.
constexpr int scale_of(int rank) { return 1 + rank % 2; }

/// Returns the rank with which `rank` exchanges messages. The first rank is the partner of the
/// last, the second of the last but one, and so on. With an odd number of ranks, the middle rank is
/// its own partner.
constexpr int partner(int rank, int ranks) { return ranks - 1 - rank; }

/// A collective with all the parameters that distinguish one measured row from another.
struct CollectiveCase {
  Verb verb = Verb::kAllReduce;
  /// Bytes of the buffer that holds the parts of all ranks, or of one message.
  std::size_t bytes = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::optional<DType> wire = std::nullopt;
  Home home = Home::kArena;
  bool in_place = true;  ///< Contribution and result share one buffer; otherwise there are two.
  // For kSparseRows only:
  std::size_t width = 64;  ///< Elements of one row of the table.
  double density = 0.01;   ///< Rows that each rank passes, as a share of the table.
  RowForm rows_result = RowForm::kAuto, rows_exchange = RowForm::kAuto;

  /// Returns the largest size, at most `most` bytes, that divides into equal parts for `ranks`
  /// ranks. Each part consists of whole elements, or of whole rows for kSparseRows: of at least one
  /// unless `most` is 0.
  std::size_t whole_bytes(std::size_t most, int ranks) const;
  std::size_t height() const { return count() / width; }
  std::size_t count() const { return bytes / size_of(dtype); }
  /// Returns the number of elements in one of `ranks` equal parts.
  std::size_t part(int ranks) const { return count() / static_cast<std::size_t>(ranks); }
  /// Returns the collective with equal parts and rank 0 as root.
  CollectiveSpec spec(int ranks) const;
  /// Returns the bytes that pass over the busiest link of a rank, divided by `bytes`. It is the
  /// factor from `algbw` to `busbw`, as in nccl-tests.
  double bus_factor(int ranks) const;
};

/// Returns whether gradient sets support the dtype and the operation.
constexpr bool fits_gradients(const CollectiveCase& what) {
  return is_number(what.dtype) && is_number_op(what.op);
}

/// The number of elements that a rank contributes to a case and receives from it.
struct CaseCounts {
  std::size_t contributed = 0, received = 0;
  /// In place, the offsets of both in the rank's buffer, in elements. At least one of them is 0.
  std::size_t contributed_at = 0, received_at = 0;
};
CaseCounts counts_of(const CollectiveCase& what, int rank, int ranks);

/// Returns a lower bound for the bytes that the busiest node must send to other nodes or receive
/// from them. `node_of` gives the node of each rank. Source for all-reduce: Patarasuk and Yuan,
/// JPDC 2009.
std::size_t least_wire_bytes(const CollectiveCase& what, std::span<const int> node_of);

}  // namespace kolo::bench
