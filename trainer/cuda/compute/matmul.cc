#include "trainer/cuda/compute/matmul.h"

namespace kolo::trainer::cuda {

ColumnMajor to_column_major(const MatmulShape& s) {
  const bool a_plain = s.a == Layout::kPlain;
  const bool b_plain = s.b == Layout::kPlain;
  return {.a = {.rows = b_plain ? s.columns : s.depth,
                .columns = b_plain ? s.depth : s.columns,
                .is_transposed = !b_plain},
          .b = {.rows = a_plain ? s.depth : s.rows,
                .columns = a_plain ? s.rows : s.depth,
                .is_transposed = !a_plain},
          .d = {.rows = s.columns, .columns = s.rows, .is_transposed = false}};
}

}  // namespace kolo::trainer::cuda
