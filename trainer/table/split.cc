#include "trainer/table/split.h"

#include <utility>

namespace kolo::trainer {

TableSplit hold_out(Table table, std::size_t every) {
  TableSplit split;
  for (Table* part : {&split.train, &split.held_out}) {
    part->file = table.file;
    part->columns = table.columns;
  }
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    Table& part = i % every == every - 1 ? split.held_out : split.train;
    part.rows.push_back(std::move(table.rows[i]));
    part.lines.push_back(table.lines[i]);
  }
  return split;
}

}  // namespace kolo::trainer
