#include "benchmarks/peers/peers.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/rendezvous/launch.h"

namespace kolo::bench {
namespace {

/// Timeout of the launch, used only by a job over TCP.
[[maybe_unused]] constexpr std::chrono::seconds kStartUp{60};

/// A system that this build can measure.
struct Peer {
  std::function<std::unique_ptr<CollectiveSystem>(Runtime&)> make;
  /// Returns whether the system supports the collective or an equivalent.
  bool (*has)(Verb);
};

[[maybe_unused]] bool has_all(Verb) { return true; }
bool has_references(Verb verb) { return traits_of(verb).has_references; }

const std::map<std::string, Peer>& peers() {
  static const std::map<std::string, Peer> all = {
#if KOLO_WITH_MPI
    {"mpi", {[](Runtime&) { return make_mpi_system(); }, has_all}},
#endif
#if KOLO_WITH_GLOO
    {"gloo", {[](Runtime& runtime) { return make_gloo_system(runtime); }, has_all}},
#endif
#if KOLO_NCCL
    {"nccl",
     {[](Runtime& runtime) {
        if (runtime.device() != nullptr) return make_nccl_system(runtime, *runtime.device());
        refuse("nccl needs device memory: add --memory device-user");
      },
      [](Verb verb) { return verb != Verb::kSparseRows; }}},
#endif
    {"limit", {make_wire_limit, has_references}},
    {"streaming", {make_streaming_reference, has_references}},
  };
  return all;
}

}  // namespace

Peers::Peers(std::vector<std::string> names, Verb verb) : names_(std::move(names)) {
  for (const std::string& name : names_) {
    const std::vector<std::string> all = known(verb);
    if (std::ranges::find(all, name) == all.end()) {
      refuse(fmt::format("{}: cannot compare with '{}'{}; this build knows: {}", to_string(verb),
                         name, peers().contains(name) ? ", which has nothing like it" : "",
                         fmt::join(all, ", ")));
    }
#if KOLO_WITH_MPI
    if (name == "mpi") use_mpi();
#endif
  }
}

#if KOLO_WITH_MPI
void Peers::use_mpi() {
  if (mpi_.use_count() == 0) mpi_ = start_mpi();  // `start_mpi` may return an empty pointer
}
#endif

void Peers::keep_launcher() {
#if KOLO_WITH_MPI
  const Launch launch = detect_launch(process_environment(), true, kStartUp);
  if (launch.kind == Launch::Kind::kMpi) use_mpi();
#endif
}

std::vector<std::unique_ptr<CollectiveSystem>> Peers::connect(Runtime& runtime) const {
  std::vector<std::unique_ptr<CollectiveSystem>> systems;
  const char* const elsewhere = runtime.num_nodes() == 1 ? "limit" : "streaming";
  for (const std::string& name : names_) {
    try {
      systems.push_back(peers().at(name).make(runtime));
    } catch (const KoloError& error) {
      if (name != elsewhere) throw;
      if (runtime.rank() == 0) log::warn("left out: " + error.error().what);
    }
  }
  return systems;
}

std::vector<std::string> Peers::known(Verb verb) {
  std::vector<std::string> names;
  for (const auto& [name, peer] : peers()) {
    if (peer.has(verb)) names.push_back(name);
  }
  return names;
}

}  // namespace kolo::bench
