#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/collective/collective_case.h"

namespace kolo::bench {

/// One of MPI's algorithms for a collective: a communicator of all ranks that uses it.
struct MpiAlgorithm {
  std::string name;
  std::shared_ptr<const MPI_Comm> comm;  ///< Shared by the runs that use it; freed by the last.
  bool works_in_place = true;            ///< The collective with MPI_IN_PLACE is safe.
};

/// The algorithms that may be the best. Collective. Before: MPI was started by `MpiSession`.
/// - "default", MPI's own choice by size;
/// - from Open MPI, each algorithm of its component `tuned`, set through MPI's tool interface for
///   communicators that are made afterwards;
/// - from Open MPI, if a node of several has more than one rank, its hierarchical component `han`.
///   Its all-reduce and its reduce crash in place (4.1.4, segmentation fault), so there the
///   contribution must be copied.
std::vector<MpiAlgorithm> find_mpi_algorithms(Verb verb);

/// Sets the environment that Open MPI needs at its start to obey a chosen algorithm. Its own choice
/// by size stays unchanged.
void allow_mpi_algorithms();

}  // namespace kolo::bench
