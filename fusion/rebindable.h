#pragma once

#include <cstddef>

namespace kolo {

/// A packer whose tensors may move between iterations. Threads: the executor's.
class Rebindable {
 public:
  virtual ~Rebindable() = default;
  /// Points tensor `index` to other memory of the same size. `input`: memory of the contribution if
  /// it is elsewhere; else null.
  virtual void rebind(std::size_t index, void* data, const void* input) = 0;
};

}  // namespace kolo
