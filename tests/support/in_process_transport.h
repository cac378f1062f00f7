#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/transport/transport.h"
#include "topology/process_grid.h"

namespace kolo {

/// Capacities of ranks that share one process. They are small because their arenas use real memory.
inline constexpr TransportLimits kInProcessLimits{
    .arena_bytes = std::size_t{1} << 20, .flags_per_peer = 1U << 12, .counters = 1U << 10};

enum class PageSize : std::uint8_t { kSmall, kHuge };

/// The ranks of a whole job inside one process, for tests and simulations. Queues replace the
/// network, and the heap replaces mapped memory. Ranks of one node of the grid map each other's
/// memory; other ranks only exchange messages. New arenas are filled with 0xCB, so that reads of
/// unwritten memory show.
///
/// A send completes in the sender's next `poll`, or on receipt after `complete_sends_on_receipt`.
///
/// Threads: one thread polls all transports in any order (a seeded order repeats an interleaving),
/// or each transport has a thread.
/// Before:  the hub outlives its transports; `transport` is called once for each rank.
class InProcessHub {
 public:
  explicit InProcessHub(ProcessGrid grid, TransportLimits limits = kInProcessLimits);
  ~InProcessHub();
  InProcessHub(const InProcessHub&) = delete;
  InProcessHub& operator=(const InProcessHub&) = delete;

  const ProcessGrid& grid() const { return grid_; }

  /// Lets ranks of a node read each other's private memory.
  void open_memory(PageSize pages = PageSize::kHuge) { opened_ = pages; }
  bool opens_memory() const { return opened_.has_value(); }
  bool has_huge_pages() const { return opened_ == PageSize::kHuge; }

  /// Makes each send complete only when its message is in the receiver's buffer, like a large
  /// message on a network.
  void complete_sends_on_receipt() { completes_on_receipt_ = true; }
  bool completes_on_receipt() const { return completes_on_receipt_; }

  /// Returns the transport of one rank. Destroying it without `shutdown` looks like a crash to
  /// peers. Errors: UsageError if there is no such rank or its transport was returned before.
  std::unique_ptr<Transport> transport(int rank);

  /// The state of one rank that its peers access: mailbox, memory and doorbell.
  struct Station;

 private:
  ProcessGrid grid_;
  TransportLimits limits_;
  std::optional<PageSize> opened_;
  bool completes_on_receipt_ = false;
  std::vector<std::unique_ptr<Station>> stations_;
};

}  // namespace kolo
