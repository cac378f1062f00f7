#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "benchmarks/sim/sim_cluster.h"

namespace kolo::bench {

/// One measured all-reduce, as `kolo-bench all-reduce --json` writes it.
struct MeasuredRow {
  std::size_t bytes = 0;
  DType dtype = DType::kFloat32;
  std::string algorithm;
  int ranks = 1;
  int nodes = 1;
  Placement placement = Placement::kInPlace;
  double time_us = 0;
  std::string link_costs = {};  ///< As measured when the job began.
};

/// Kolo's rows of such a file, in memory of the host. `column` is the time that is read: "time_us",
/// "median_us", "min_us" or "p99_us". Errors: KoloError(kIo) or (kData) naming the file and what is
/// wrong.
std::vector<MeasuredRow> read_measured(const std::string& file, const std::string& column);

/// The time that `costs` predict for a row, of iterations that follow each other: where links let a
/// burst pass, they save it up only if they have time to. `compile` without a chunk_bytes: as the
/// runtime sizes them. Errors: KoloError(kData) if its ranks do not fill its nodes evenly; as
/// `Cluster::run`.
double predict_us(const MeasuredRow& row, const MachineCosts& costs, const CompileOptions& compile);

}  // namespace kolo::bench
