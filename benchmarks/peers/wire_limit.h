#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "benchmarks/all_reduce/all_reduce_system.h"
#include "comm/base/unique_handle.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Plain TCP connections between the first ranks of neighbouring nodes, in a ring: one to the next
/// node and one from the node before; none on other ranks. Collective.
/// Errors: KoloError(kIo) if a neighbour cannot be reached; those of `network_address`.
class WireNeighbours {
 public:
  explicit WireNeighbours(Runtime& runtime);

  bool active() const { return static_cast<bool>(to_next_); }
  int to_next() const { return to_next_.get(); }
  int from_previous() const { return from_previous_.get(); }

 private:
  FileDescriptor to_next_;
  FileDescriptor from_previous_;
};

/// The floor that the links set between N nodes: every node streams 2(N-1)/N of the bytes to the
/// next one and as many come in, at the same time since links are full duplex. That is the least a
/// node has to send and to receive, with one rank per node at work and nothing added to anything.
/// Threads: the main thread. Errors: KoloError(kIo or kPeerLost).
class WireLimit final : public AllReduceRun {
 public:
  /// `neighbours` outlives it.
  WireLimit(Runtime& runtime, const WireNeighbours& neighbours, const AllReduceCase& what);

  void write(const void*) override {}
  void read(void*) override {}
  void read_contribution(void*) override {}
  void align() override { runtime_.barrier(); }
  void run() override;
  std::string algorithm() const override { return "wire"; }

 private:
  Runtime& runtime_;
  const WireNeighbours& neighbours_;
  std::size_t bytes_;
  std::vector<std::byte> out_, in_;  ///< One piece of the stream.
};

}  // namespace kolo::bench
