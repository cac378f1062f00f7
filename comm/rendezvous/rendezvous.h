#pragma once

#include <string>
#include <vector>

namespace kolo {

/// How the ranks of a job find each other: one collective exchange of byte strings at start-up.
/// After it, no launcher and no bootstrap network is needed.
///
/// Threads: the thread that made it (for MPI: the main thread).
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Gives `mine` to everybody and returns what every rank gave, by rank. Collective.
  /// Errors: KoloError(kPeerLost or kTimeout) within the start-up deadline.
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
};

}  // namespace kolo
