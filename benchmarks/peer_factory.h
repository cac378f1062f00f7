#pragma once

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/all_reduce_system.h"

namespace kolo::bench {

/// The peers that this build can measure beside Kolo, alive until it is destroyed. Made before the
/// runtime, because MPI must be started by whoever wants to keep it.
class Peers {
 public:
  /// Errors: KoloError(kConfig) for a name that is not "mpi", or that this build does not have.
  explicit Peers(const std::vector<std::string>& names);
  ~Peers();

  std::vector<std::unique_ptr<AllReduceSystem>> take_systems();

 private:
  struct Sessions;
  std::unique_ptr<Sessions> sessions_;
  std::vector<std::unique_ptr<AllReduceSystem>> systems_;
};

}  // namespace kolo::bench
