#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

namespace kolo::bench {

/// One of MPI's algorithms for an all-reduce: a communicator of all ranks that uses it.
struct MpiAlgorithm {
  std::string name;
  std::shared_ptr<const MPI_Comm> comm;  ///< Shared by the runs that use it; freed by the last.
  bool works_in_place = true;            ///< MPI_IN_PLACE is safe.
};

/// The algorithms that may be the best. Collective. Before: MPI was started by `MpiSession`.
/// - "default", MPI's own choice by size;
/// - from Open MPI, each algorithm of its component `tuned`, set through MPI's tool interface,
/// which
///   a communicator made afterwards obeys;
/// - from Open MPI, if a node of several has more than one rank, its hierarchical component `han`.
///   In place it crashes (4.1.4, segmentation fault), so there the contribution must be copied.
std::vector<MpiAlgorithm> find_mpi_algorithms();

/// Sets what Open MPI must find in the environment when it starts, or it ignores a chosen
/// algorithm. Its own choice by size stays as it is.
void allow_mpi_algorithms();

}  // namespace kolo::bench
