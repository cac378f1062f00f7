#pragma once

#include <string>
#include <vector>

#include "runtime/calls/rows/row_sums.h"

namespace kolo {

/// A row-sparse all-reduce, as all ranks must call it alike.
struct RowCall {
  std::vector<RowTable> tables;
  RowOptions options;

  friend bool operator==(const RowCall&, const RowCall&) = default;
};

/// "sparse_all_reduce float32 [10, 4] + [20, 8] sum, result auto, exchange auto".
std::string to_string(const RowCall& call);

}  // namespace kolo
