#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/support/cuda_emulator/fiber.h"
#include "tests/support/cuda_emulator/place.h"
#include "tests/support/cuda_emulator/shared_memory.h"
#include "tests/support/cuda_emulator/vector_types.h"

namespace kolo::emulator {

inline constexpr unsigned kLanes = 32;

/// One launch; `thread` is what each thread runs.
struct Launch {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  std::function<void()> thread;
};

using Random = std::mt19937;

/// Fibers on which nothing runs, kept for the next block: a stack is dear.
using FiberPool = std::vector<std::unique_ptr<Fiber>>;

/// The threads of one block, each of which runs until it waits for others. Which one runs next is
/// drawn from `random`.
class Block {
 public:
  Block(const Launch& launch, const uint3& index, Random& random, FiberPool& pool);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  bool is_done() const { return ended_ == threads_.size(); }

  /// Runs a thread until it waits, and all those before it that end without waiting.
  /// Before: not is_done(). Errors: Fault, or what a thread has thrown; the block is then dead.
  void step();

  /// For the thread that runs.
  struct Position {
    uint3 thread, block;
    dim3 block_size, grid_size;
  };
  const Position& position() const { return position_; }
  SharedMemory& shared() { return shared_; }

  /// Waits for all threads of the block. Errors: Fault if they wait at different places.
  void sync_threads(const Place& where);

  /// Waits for all lanes of the warp; returns what each of them brought, valid until the next but
  /// one exchange. Errors: Fault unless `mask` names all 32 lanes and all wait at the same place.
  std::span<const std::uint64_t, kLanes> exchange(unsigned mask, std::uint64_t value,
                                                  const Place& where);
  unsigned lane() const { return running_ % kLanes; }

  /// The block whose thread runs. Errors: Fault outside of kernels.
  static Block& current();

 private:
  /// Where threads wait until there are `size` of them.
  struct Meeting {
    unsigned size = 0;
    Place where = {};
    std::vector<unsigned> waiting = {};
  };
  struct Warp {
    Meeting meeting;
    unsigned rounds[kLanes] = {};  ///< Exchanges of each lane.
    std::array<std::uint64_t, kLanes> values[2] = {};
  };

  void run_threads();
  Fiber& take_fiber();
  void wait_at(Meeting& meeting, const Place& where);
  void become(unsigned thread);
  std::string name() const;
  [[noreturn]] void report_deadlock() const;

  const Launch& launch_;
  Random& random_;
  Position position_;
  SharedMemory shared_;
  std::vector<Fiber*> threads_;  ///< Which fiber a thread that waits is on.
  std::vector<unsigned> unstarted_;
  std::vector<unsigned> ready_;  ///< They waited, and need not any longer.
  std::size_t ended_ = 0;
  unsigned running_ = 0;
  Fiber* fiber_ = nullptr;  ///< That of the running thread.
  Meeting all_;
  std::vector<Warp> warps_;
  FiberPool& pool_;
  FiberPool fibers_;          ///< All that this block has taken.
  std::vector<Fiber*> idle_;  ///< Those of them that are free.
  std::exception_ptr thrown_;
};

}  // namespace kolo::emulator
