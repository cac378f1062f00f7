#pragma once

#include <cstddef>

#include "trainer/table/table.h"

namespace kolo::trainer {

/// The rows to learn from and those to test with.
struct TableSplit {
  Table train;
  Table held_out;
};

/// Holds out the last of each `every` rows, so that a table in any order is split evenly.
TableSplit hold_out(Table table, std::size_t every);

}  // namespace kolo::trainer
