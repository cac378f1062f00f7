#include "benchmarks/peer_factory.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "comm/base/error.h"

#if KOLO_WITH_MPI
#include "benchmarks/mpi_system.h"
#endif

namespace kolo::bench {

struct Peers::Sessions {
#if KOLO_WITH_MPI
  std::optional<MpiSession> mpi;
#endif
};

Peers::Peers(const std::vector<std::string>& names) : sessions_(std::make_unique<Sessions>()) {
  for (const std::string& name : names) {
#if KOLO_WITH_MPI
    if (name == "mpi") {
      sessions_->mpi.emplace();
      systems_.push_back(make_mpi_system());
      continue;
    }
#endif
    throw KoloError({.code = ErrorCode::kConfig,
                     .what = fmt::format(
                         "cannot compare with '{}'; this build knows: {}", name,
                         KOLO_WITH_MPI ? "mpi" : "nothing (configure with -DKOLO_WITH_MPI=ON)")});
  }
}

Peers::~Peers() = default;

std::vector<std::unique_ptr<AllReduceSystem>> Peers::take_systems() { return std::move(systems_); }

}  // namespace kolo::bench
