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
  std::string link_costs = {};  ///< As measured at the start of the job.
};

/// Kolo's rows of such a file, in host memory. `column` is the time to read: "time_us",
/// "median_us", "min_us" or "p99_us". Errors: KoloError(kIo) or (kData) naming the file and the
/// mistake.
std::vector<MeasuredRow> read_measured(const std::string& file, const std::string& column);

/// The time that `costs` predict for a row, of successive iterations: links that let a burst pass
/// save it up only if they have time. Without a chunk_bytes in `compile`, chunks are sized as by
/// the runtime. Errors: KoloError(kData) if its ranks do not fill its nodes evenly; as
/// `Cluster::run`.
double predict_us(const MeasuredRow& row, const MachineCosts& costs, const CompileOptions& compile);

}  // namespace kolo::bench
