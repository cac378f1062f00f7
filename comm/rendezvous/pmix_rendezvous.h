#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "comm/rendezvous/rendezvous.h"

namespace kolo {

/// Rendezvous of the ranks that a launcher with PMIx has started (`mpirun`, `srun --mpi=pmix`), in
/// programs without MPI. A round is one fence, which collects what all ranks have put. PMIx tells
/// fences apart by their ranks alone: where there are several rendezvous, all ranks use them in the
/// same order, and after a time-out the job has no other. The first one starts PMIx, which ends
/// with the process.
///
/// Threads: one. Errors: KoloError(kConfig) if libpmix.so.2 cannot be loaded; KoloError(kTimeout)
///          if not all ranks have come within `timeout`; KoloError(kPeerLost) if PMIx reports a
///          failure. The first one is thrown by every later call, too.
class PmixRendezvous final : public Rendezvous {
 public:
  explicit PmixRendezvous(std::chrono::milliseconds timeout);
  ~PmixRendezvous() override;

  int rank() const override;
  int size() const override;
  std::vector<std::string> all_gather(const std::string& mine) override;

 private:
  class Client;
  std::unique_ptr<Client> client_;
  std::optional<Error> failure_;
};

}  // namespace kolo
