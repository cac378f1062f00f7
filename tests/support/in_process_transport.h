#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/transport/transport.h"
#include "topology/process_grid.h"

namespace kolo {

/// Capacities for ranks that share one process; small, because their arenas use real memory.
inline constexpr TransportLimits kInProcessLimits{
    .arena_bytes = std::size_t{1} << 20, .flags_per_peer = 1U << 12, .counters = 1U << 10};

enum class PageSize : std::uint8_t { kSmall, kHuge };

/// The ranks of a whole job inside one process, for tests and simulations: queues instead of wires,
/// the heap instead of mapped memory. Ranks of one node of the grid are mapped, others only
/// exchange messages. Fresh arenas are filled with 0xCB, so that reads of unwritten memory show.
///
/// Sends complete in the sender's next `poll`, as if the wire took time, or when they are received.
///
/// Threads: one for all transports, in any order (a seeded order replays an interleaving), or one
///          for each transport.
/// Before:  the hub outlives its transports; each rank is taken once.
class InProcessHub {
 public:
  explicit InProcessHub(ProcessGrid grid, TransportLimits limits = kInProcessLimits);
  ~InProcessHub();
  InProcessHub(const InProcessHub&) = delete;
  InProcessHub& operator=(const InProcessHub&) = delete;

  const ProcessGrid& grid() const { return grid_; }

  /// From now on ranks of a node may read each other's private memory.
  void open_memory(PageSize pages = PageSize::kHuge) { opened_ = pages; }
  bool opens_memory() const { return opened_.has_value(); }
  bool has_huge_pages() const { return opened_ == PageSize::kHuge; }

  /// From now on a send completes only once its message is in the receiver's buffer, as large
  /// messages do on a network.
  void complete_sends_on_receipt() { completes_on_receipt_ = true; }
  bool completes_on_receipt() const { return completes_on_receipt_; }

  /// The transport of one rank. Destroying it without `shutdown` is a disorderly end. Errors:
  /// UsageError if there is no such rank or it was taken before.
  std::unique_ptr<Transport> transport(int rank);

  /// The shared state of one rank: its mailbox, memory and doorbell.
  struct Station;

 private:
  ProcessGrid grid_;
  TransportLimits limits_;
  std::optional<PageSize> opened_;
  bool completes_on_receipt_ = false;
  std::vector<std::unique_ptr<Station>> stations_;
};

}  // namespace kolo
