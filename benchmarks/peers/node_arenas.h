#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "comm/transport/arena.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Memory of equal size of each rank of a job on one node, which all of them have mapped.
/// Threads: the main thread.
class NodeArenas {
 public:
  /// Collective; `name` is new for every call. Units: bytes, a multiple of the page size; none are
  /// committed.
  /// Errors: those of `Arena`; KoloError(kIo) if a rank may not open what a peer has made.
  NodeArenas(Runtime& runtime, std::string_view name, std::size_t bytes);

  std::byte* data(int rank) const { return arenas_[static_cast<std::size_t>(rank)].data(); }
  Arena& own() { return arenas_[own_]; }

 private:
  std::size_t own_;
  std::vector<Arena> arenas_;  // by rank
};

}  // namespace kolo::bench
