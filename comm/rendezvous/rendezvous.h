#pragma once

#include <string>
#include <vector>

namespace kolo {

/// How the ranks of a job find each other: one collective exchange of byte strings at start-up.
/// Afterwards neither a launcher nor a bootstrap network is needed.
///
/// Threads: the thread that created it; with MPI that must be the main thread.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  /// This process's rank, from 0 to size() - 1.
  virtual int rank() const = 0;
  /// Number of ranks in the job.
  virtual int size() const = 0;

  /// Returns the strings that all ranks passed, in rank order. Collective.
  /// Errors: KoloError(kPeerLost) or KoloError(kTimeout) before the start-up deadline.
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
};

/// A job of one rank, for programs started without a launcher. Threads: any.
class SingleRendezvous final : public Rendezvous {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> all_gather(const std::string& mine) override { return {mine}; }
};

}  // namespace kolo
