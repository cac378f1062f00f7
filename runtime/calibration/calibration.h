#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/algorithms/tuning.h"
#include "comm/rendezvous/batched_exchange.h"
#include "comm/transport/transport.h"
#include "runtime/calibration/rank_place.h"
#include "runtime/options/options.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

class CalibrationFile;

/// Link costs and their source, and choices by measurement.
struct Calibration {
  LinkCosts costs;
  Tuning tuning = {};
  bool is_doubtful = false;  ///< Whether samples disagreed, as on a busy machine.
  std::string shape = {};    ///< See `job_shape`; empty if nothing is measured.
  /// For display: "measured in 143 ms", "read from PATH" or "defaults".
  std::string source;
};

/// Determines the link costs of a job. They are read from the `calibration_file` if it has costs
/// for a job of this shape that are not older than `kCostsExpire`. Otherwise they are measured, for
/// up to 200 ms in all, unless the option `calibrate` is off or `reproducible` is on. If samples of
/// a cost disagree, as on a busy machine, the job uses the default of that cost, logs one warning,
/// and saves no costs. Saved costs are used once two jobs in a row have measured them (see
/// `confirms`). All ranks have the same costs. The option `link_costs` overrides single costs.
/// Tuned choices come from the file, too, unless `link_costs` is set or costs are not measured.
///
///     Calibrator calibrator(...);     calibrator.post(exchange);
///     exchange.run();                 // the round in which networks exchange their addresses
///     if (calibrator.measure(exchange, transport, limits)) exchange.run();
///     calibrator.finish(exchange);
///
/// Threads: as the transport. Errors: KoloError of the rendezvous or the transport.
class Calibrator {
 public:
  /// All arguments must outlive this object.
  Calibrator(int rank, const ProcessGrid& grid, std::span<const RankPlace> places,
             const Options& options);
  ~Calibrator();

  /// Posts the saved costs, if there are any. Needs no transport.
  void post(BatchedExchange& exchange);

  /// Measures, unless costs are known, and posts the results. Returns whether it measured, equal on
  /// all ranks. Collective. Precondition: nothing is in flight. Uses up the last two of the
  /// `limits.flags_per_peer` flags of each pair of ranks.
  bool measure(BatchedExchange& exchange, Transport& transport, const TransportLimits& limits);

  /// Returns the job's costs. Precondition: if `measure` returned true, the exchange has run again.
  Calibration finish(BatchedExchange& exchange);

 private:
  Calibration defaults() const;
  Calibration known_or_measured(BatchedExchange& exchange);
  bool measures() const;
  /// Returns whether ranks of this node outnumber its cores.
  bool shares_cores() const;

  const int rank_;
  const ProcessGrid& grid_;
  const std::span<const RankPlace> places_;
  const Options& options_;
  LinkCosts known_;  // costs before any are measured
  /// Whether costs are kept for later jobs. On one node, choices do not change the bits of a sum,
  /// so each run may measure again.
  const bool remembers_ = options_.calibration_file != "auto" || grid_.num_nodes() > 1;
  std::unique_ptr<CalibrationFile> file_;  // null if costs are not measured
};

}  // namespace kolo
