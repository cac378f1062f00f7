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

/// Location of the tensors of a case. Memory outside the arena belongs to the caller.
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

/// The home with the same kind of memory, for a system without an arena.
constexpr Home without_arena(Home home) {
  return memory_kind(home) == MemoryKind::kHost ? Home::kUser : Home::kDeviceUser;
}

/// The collective that a case measures, named as its command.
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
  kSparseRows,  ///< An all-reduce of a table of which each rank has some rows.
};

/// The properties of a collective that commands, checks and peers use.
struct VerbTraits {
  Verb value;
  /// The collective. Parts are equal, and rank 0 is the root.
  CollectiveKind kind = CollectiveKind::kOther;
  /// Name of a case of several calls, which is not measured with other placements.
  std::string_view name = {};
  /// Measured in place by default, otherwise out of place.
  bool in_place = false;
  /// There is a bound or a reference for moving its bytes.
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

/// A rank's factor for its contributions to premultiplied sums.
constexpr int scale_of(int rank) { return 1 + rank % 2; }

/// The rank with which `rank` exchanges messages: the first with the last, and so on; with an odd
/// number of ranks, the middle one with itself.
constexpr int partner(int rank, int ranks) { return ranks - 1 - rank; }

/// The case measured by one row.
struct CollectiveCase {
  Verb verb = Verb::kAllReduce;
  /// Size of the buffer that holds the parts of all ranks, or of a message.
  std::size_t bytes = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::optional<DType> wire = std::nullopt;
  Home home = Home::kArena;
  bool in_place = true;  ///< Contribution and result share one buffer; otherwise there are two.
  // For kSparseRows only:
  std::size_t width = 64;  ///< Elements of a row of the table.
  double density = 0.01;   ///< Number of rows that each rank passes, relative to the table's.
  RowForm rows_result = RowForm::kAuto, rows_exchange = RowForm::kAuto;

  /// The largest size up to `most` that makes equal parts for `ranks` ranks, of whole elements or
  /// rows.
  std::size_t whole_bytes(std::size_t most, int ranks) const;
  std::size_t height() const { return count() / width; }
  std::size_t count() const { return bytes / size_of(dtype); }
  /// Elements of one of `ranks` equal parts.
  std::size_t part(int ranks) const { return count() / static_cast<std::size_t>(ranks); }
  /// Rank 0 is the root.
  CollectiveSpec spec(int ranks) const;
  /// Bytes over the busiest link of a rank, as a multiple of `bytes`: the factor of `busbw`, as in
  /// nccl-tests.
  double bus_factor(int ranks) const;
};

/// Whether gradient sets support the dtype and the operation.
constexpr bool fits_gradients(const CollectiveCase& what) {
  return is_number(what.dtype) && is_number_op(what.op);
}

/// Elements that `rank` contributes to the case, and receives.
struct CaseCounts {
  std::size_t contributed = 0, received = 0;
  /// In place: their offsets in the buffer, in elements. The buffer begins with the first of them.
  std::size_t contributed_at = 0, received_at = 0;
};
CaseCounts counts_of(const CollectiveCase& what, int rank, int ranks);

/// A lower bound for the bytes that some node has to send to others or receive; `node_of` gives the
/// node of each rank. Source for all-reduce: Patarasuk and Yuan, JPDC 2009.
std::size_t least_wire_bytes(const CollectiveCase& what, std::span<const int> node_of);

}  // namespace kolo::bench
