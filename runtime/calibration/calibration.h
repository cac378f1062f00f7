#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/rendezvous/batched_exchange.h"
#include "comm/transport/transport.h"
#include "runtime/calibration/rank_place.h"
#include "runtime/options/options.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

class CalibrationFile;

/// Link costs, and where they come from.
struct Calibration {
  LinkCosts costs;
  /// For people: "measured in 143 ms", "read from PATH" or "defaults".
  std::string source;
};

/// Finds out what the links of a job cost: from the option `calibration_file` if it knows a job of
/// this shape whose costs are not older than `kCostsExpire`, else by measuring, for up to 200 ms in
/// all, unless the option `calibrate` is off or `reproducible` is on. Defaults stand in for what
/// ranks measured whose samples disagree, as those of a busy machine do: one warning says so, and
/// no file remembers them. A file's costs count once two jobs in a row have measured them (see
/// `confirms`). All ranks hold the same costs. The option `link_costs` overrides single ones.
///
///     Calibrator calibrator(...);     calibrator.post(exchange);
///     exchange.run();                 // the round in which networks exchange their addresses
///     if (calibrator.measure(exchange, transport, limits)) exchange.run();
///     calibrator.finish(exchange);
///
/// Threads: as the transport. Errors: KoloError, those of rendezvous and transport.
class Calibrator {
 public:
  /// Everything outlives it.
  Calibrator(int rank, const ProcessGrid& grid, std::span<const RankPlace> places,
             const Options& options);
  ~Calibrator();

  /// Posts what this rank knows before any transport is there.
  void post(BatchedExchange& exchange);

  /// Measures, if no costs are known, and posts the results. Returns whether it did; all ranks do
  /// or none. Collective. Before: nothing is in flight. Flags `limits.flags_per_peer` - 2 and up of
  /// all pairs are used up.
  bool measure(BatchedExchange& exchange, Transport& transport, const TransportLimits& limits);

  /// Before: if `measure` returned true, a round has run.
  Calibration finish(BatchedExchange& exchange);

 private:
  Calibration defaults() const;
  bool measures() const;
  /// Whether ranks of this node outnumber its cores.
  bool shares_cores() const;

  const int rank_;
  const ProcessGrid& grid_;
  const std::span<const RankPlace> places_;
  const Options& options_;
  LinkCosts known_;                        // before anything is measured
  std::unique_ptr<CalibrationFile> file_;  // if it measures or has a file
};

}  // namespace kolo
