#pragma once

#include <vector>

#include "runtime/calls/operation.h"

namespace kolo::test {

/// One tensor of an operation in place.
inline std::vector<TensorBuffers> in_place(const BufferView& buffer) {
  return {{.result = buffer.data, .count = buffer.count}};
}

}  // namespace kolo::test
