#pragma once

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/collective/collective_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// The systems of this build that can be measured beside Kolo, alive until it is destroyed. Made
/// before the runtime, because whoever starts MPI also finalizes it.
class Peers {
 public:
  /// Errors: KoloError(kConfig) for a name that this build does not know, or not for this verb.
  explicit Peers(std::vector<std::string> names, Verb verb = Verb::kAllReduce);
  ~Peers();

  /// Keeps MPI alive if this job was started by it, so that more than one runtime can be made.
  void keep_launcher();

  /// Connects the systems, in the order of their names. Collective; they do not outlive this and
  /// the runtime. Errors: KoloError(kConfig) for NCCL on a runtime without a device; those of the
  ///                  systems.
  std::vector<std::unique_ptr<CollectiveSystem>> connect(Runtime& runtime) const;

  /// Names of the systems of this build that have the collective: "limit", "streaming" and, if it
  /// was built with them, "mpi", "gloo" and "nccl".
  static std::vector<std::string> known(Verb verb = Verb::kAllReduce);

 private:
  struct Sessions;
  std::vector<std::string> names_;
  std::unique_ptr<Sessions> sessions_;
};

}  // namespace kolo::bench
