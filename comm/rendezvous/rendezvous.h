#pragma once

#include <string>
#include <vector>

namespace kolo {

/// Connects the ranks of a job at start-up by collective exchanges of byte strings. After start-up
/// the job needs neither launcher nor bootstrap network.
///
/// Threads: the thread that created it, which must be the main thread with MPI.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  /// Returns this process's rank, from 0 to size() - 1.
  virtual int rank() const = 0;
  /// Returns the number of ranks in the job.
  virtual int size() const = 0;

  /// Returns the strings that all ranks passed, in rank order. Collective: all ranks call it.
  /// Errors: KoloError(kPeerLost); KoloError(kTimeout) at the start-up deadline.
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
};

/// The rendezvous of a job of one rank, for programs without a launcher. Threads: any.
class SingleRendezvous final : public Rendezvous {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> all_gather(const std::string& mine) override { return {mine}; }
};

}  // namespace kolo
