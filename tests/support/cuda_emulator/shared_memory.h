#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace kolo::emulator {

/// The shared memory of one block. It starts as NaN or the largest unsigned number, so reads before
/// writes show in the result.
class SharedMemory {
 public:
  /// Limit of a launch unless its kernel requests more.
  static constexpr std::size_t kMostBytes = std::size_t{48} << 10;

  explicit SharedMemory(std::size_t dynamic_bytes);

  /// The variable of `key`, the same for all threads of the block. Errors: Fault if the block's
  /// variables exceed kMostBytes.
  void* variable(const void* key, std::size_t bytes);

  void* dynamic() { return variables_.front().memory.get(); }

  /// Errors: Fault if a kernel wrote behind a variable.
  void check_margins() const;

 private:
  struct Variable {
    const void* key = nullptr;
    std::size_t bytes = 0;
    std::unique_ptr<std::byte[]> memory = {};  ///< Followed by a margin.
  };
  void* add(const void* key, std::size_t bytes);

  std::vector<Variable> variables_;  ///< The first one is the dynamic memory.
  std::size_t bytes_ = 0;
};

}  // namespace kolo::emulator
