#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

namespace kolo::bench {

/// One of MPI's algorithms for an all-reduce: a communicator of all ranks that takes it.
struct MpiAlgorithm {
  std::string name;
  std::shared_ptr<const MPI_Comm> comm;  ///< Shared by the runs that use it; freed by the last.
};

/// "default", which is MPI's own choice by size, and, from Open MPI, each algorithm of its
/// component `tuned` that may be the best: those are set through MPI's tool interface, which a
/// communicator made afterwards obeys. Collective. Before: MPI was started by `MpiSession`.
std::vector<MpiAlgorithm> find_mpi_algorithms();

/// What Open MPI must find in the environment when it starts, or it ignores a chosen algorithm. Its
/// own choice by size stays as it is.
void allow_mpi_algorithms();

}  // namespace kolo::bench
