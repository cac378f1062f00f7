#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/cuda_emulator/fiber.h"
#include "tests/support/cuda_emulator/shared_memory.h"

namespace kolo::emulator {

/// Thrown when a kernel would hang, trap or compute wrong values on a GPU. The text names the line
/// in the kernel's source.
class Fault : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// A line of a kernel's source. It replaces std::source_location, which Clang 14 lacks.
struct Place {
  const char* file = "";
  unsigned line = 0;

  /// Used as a default argument, it returns the line of the call.
  static constexpr Place here(const char* file = __builtin_FILE(),
                              unsigned line = __builtin_LINE()) {
    return {file, line};
  }

  bool operator==(const Place& other) const {
    return line == other.line && std::string_view(file) == other.file;
  }

  std::string describe() const { return std::string(file) + ":" + std::to_string(line); }
};

}  // namespace kolo::emulator

/// CUDA's built-in vector types that the kernels use: plain data with CUDA's alignment.

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct alignas(8) uint2 {
  unsigned x, y;
};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

struct alignas(16) float4 {
  float x, y, z, w;
};

namespace kolo::emulator {

inline constexpr unsigned kLanes = 32;

/// One launch of a kernel. Each of its threads calls `thread`.
struct Launch {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  std::function<void()> thread;
};

using Random = std::mt19937;

/// Idle fibers. They are kept for the next block, because allocating a stack is expensive.
using FiberPool = std::vector<std::unique_ptr<Fiber>>;

/// The threads of one block, which run one at a time. A thread runs until it waits for other
/// threads; `random` then selects the next thread.
class Block {
 public:
  Block(const Launch& launch, const uint3& index, Random& random, FiberPool& pool);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  bool is_done() const { return ended_ == threads_.size(); }

  /// Runs threads until one of them waits or no unstarted thread is left. Before: not is_done().
  /// Errors: Fault, or the exception of a thread; the block cannot be used afterwards.
  void step();

  /// Position of the running thread in its block and grid.
  struct Position {
    uint3 thread, block;
    dim3 block_size, grid_size;
  };
  const Position& position() const { return position_; }
  SharedMemory& shared() { return shared_; }

  /// Waits for all threads of the block. Errors: Fault if threads wait at different lines.
  void sync_threads(const Place& where);

  /// Waits for all lanes of the warp. Returns the values of all lanes; they are valid until the
  /// second exchange after this one. Errors: Fault if `mask` does not name all 32 lanes, or if
  /// lanes wait at different lines.
  std::span<const std::uint64_t, kLanes> exchange(unsigned mask, std::uint64_t value,
                                                  const Place& where);
  unsigned lane() const { return running_ % kLanes; }

  /// Returns the block of the running thread. Errors: Fault outside of kernels.
  static Block& current();

 private:
  /// A barrier of `size` threads.
  struct Meeting {
    unsigned size = 0;
    Place where = {};
    std::vector<unsigned> waiting = {};
  };
  struct Warp {
    Meeting meeting;
    unsigned rounds[kLanes] = {};  ///< Number of exchanges so far, by lane.
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
  std::vector<Fiber*> threads_;  ///< Fiber of each waiting thread, by thread.
  std::vector<unsigned> unstarted_;
  std::vector<unsigned> ready_;  ///< Threads that have waited and can continue.
  std::size_t ended_ = 0;
  unsigned running_ = 0;
  Fiber* fiber_ = nullptr;  ///< Fiber of the running thread.
  Meeting all_;
  std::vector<Warp> warps_;
  FiberPool& pool_;
  FiberPool fibers_;          ///< All fibers that this block uses.
  std::vector<Fiber*> idle_;  ///< Those of `fibers_` that run no thread.
  std::exception_ptr thrown_;
};

}  // namespace kolo::emulator
