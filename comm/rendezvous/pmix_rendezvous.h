#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "comm/rendezvous/rendezvous.h"

namespace kolo {

/// The rendezvous of ranks that a launcher with PMIx has started (`mpirun`, `srun --mpi=pmix`), for
/// programs without MPI. A round is one fence, which collects the data that all ranks have put.
/// PMIx distinguishes fences only by their ranks. Therefore all ranks must use several rendezvous
/// in the same order, and after a timeout the job cannot use another one. The first one starts
/// PMIx, which runs until the process ends.
///
/// Threads: one. Errors: KoloError(kConfig) if libpmix.so.2 cannot be loaded; KoloError(kTimeout)
/// if a rank does not join within `timeout`; KoloError(kPeerLost) if PMIx reports a failure. Every
/// later call throws the first error again.
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
