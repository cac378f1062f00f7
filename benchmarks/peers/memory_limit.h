#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "benchmarks/all_reduce/all_reduce_system.h"
#include "benchmarks/peers/stream_memory.h"
#include "benchmarks/peers/streaming_sum.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// The floor that memory sets inside a node: with P ranks and S bytes, each rank reads P streams of
/// S/P bytes, adds them and writes P streams of S/P, over memory of its own. That is what an
/// all-reduce cannot do without if each rank reduces one part of all buffers and writes the result
/// to all of them, less every flag and every line that must move between cores.
///
/// If ranks outnumber the cores, as many ranks as there are cores share the streams of all:
/// processes that take turns on a core would only add the scheduler's time.
///
/// The streams hold the contribution: memory moves zeros faster than numbers.
///
/// Threads: the main thread. Errors: those of the runtime.
class MemoryLimit final : public AllReduceRun {
 public:
  MemoryLimit(Runtime& runtime, const AllReduceCase& what, Stores stores);

  void write(const void* elements) override;
  void read(void*) override {}
  void read_contribution(void*) override {}
  /// Until all ranks are here and the runtime's own threads rest.
  void align() override;
  void run() override;
  std::string algorithm() const override {
    return stores_ == Stores::kCached ? "memory" : "memory, past caches";
  }

 private:
  /// What one rank moves.
  struct Streams {
    StreamMemory contribution;
    StreamMemory sum;  ///< Null in place.
    std::vector<const float*> in;
    std::vector<float*> out;
  };

  Runtime& runtime_;
  Stores stores_;
  std::size_t bytes_ = 0;       ///< Of the contribution.
  std::size_t part_count_ = 0;  ///< Floats per stream.
  std::size_t stride_ = 0;      ///< Bytes from one stream to the next.
  std::vector<Streams> streams_;
};

}  // namespace kolo::bench
