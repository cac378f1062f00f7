#pragma once

#include <memory>

#include "benchmarks/all_reduce/all_reduce_system.h"

namespace kolo::bench {

/// Starts MPI before anybody else does, so that it lives until the end of `main`, and finishes it
/// in the destructor. Threads: the main thread.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
};

/// MPI_Allreduce on all ranks, by the best of MPI's algorithms. Collective; needs an `MpiSession`,
/// which it does not outlive.
/// Errors: prepare throws KoloError(kConfig) for 16-bit floats, which MPI has no reduction for.
std::unique_ptr<AllReduceSystem> make_mpi_system();

}  // namespace kolo::bench
