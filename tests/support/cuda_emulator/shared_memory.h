#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace kolo::emulator {

/// The shared memory of one block. All bits are set initially, which is NaN in floats and the
/// largest unsigned number, so that a read before the first write shows in the result.
class SharedMemory {
 public:
  /// Maximum size in a launch whose kernel does not request more, in bytes.
  static constexpr std::size_t kMostBytes = std::size_t{48} << 10;

  explicit SharedMemory(std::size_t dynamic_bytes);

  /// Returns the variable of `key`, which all threads of the block share. Errors: Fault if the
  /// variables of the block exceed kMostBytes.
  void* variable(const void* key, std::size_t bytes);

  void* dynamic() { return variables_.front().memory.get(); }

  /// Errors: Fault if a kernel wrote past the end of a variable.
  void check_margins() const;

 private:
  struct Variable {
    const void* key = nullptr;
    std::size_t bytes = 0;
    std::unique_ptr<std::byte[]> memory = {};  ///< A margin follows the variable.
  };
  void* add(const void* key, std::size_t bytes);

  std::vector<Variable> variables_;  ///< The first one is the dynamic memory.
  std::size_t bytes_ = 0;
};

}  // namespace kolo::emulator
