#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "comm/base/error.h"
#include "trainer/cuda/compute/blas.h"
#include "trainer/cuda/cuda_model.h"
#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/embedding.h"
#include "trainer/cuda/kernels/layer_norm.h"
#include "trainer/cuda/kernels/layouts.h"
#include "trainer/cuda/parameters.h"

namespace kolo::trainer::cuda {
namespace {

TEST(ParameterPlan, ChunksCoverEveryElementOnceAndDecayAsTheOptimizerSays) {
  ParameterSet parameters(1);
  parameters.add("matrix", {3, kUpdateChunk}, {});
  parameters.add("vector", {kUpdateChunk + 5}, {});
  parameters.add("scalar", {1}, {});
  const ParameterPlan plan = plan_parameters(parameters);
  std::vector<int> covered(plan.count);
  for (const PlannedChunk& planned : plan_chunks(plan, parameters)) {
    const UpdateChunk& chunk = planned.chunk;
    EXPECT_EQ(chunk.offset, plan.offsets[planned.parameter] + planned.begin);
    EXPECT_EQ(chunk.offset % 4, 0u) << "packs of four floats are aligned";
    EXPECT_LE(chunk.count, kUpdateChunk);
    EXPECT_EQ(chunk.decays, planned.parameter == 0 ? 1u : 0u);
    for (std::size_t i = 0; i < chunk.count; ++i) ++covered[chunk.offset + i];
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    EXPECT_EQ(plan.offsets[p] % kParameterAlignment, 0u);
    for (std::size_t i = 0; i < plan.sizes[p]; ++i) EXPECT_EQ(covered[plan.offsets[p] + i], 1);
  }
  EXPECT_EQ(static_cast<std::size_t>(std::count(covered.begin(), covered.end(), 1)),
            parameters.element_count());
}

TEST(BatchPlan, PartsAreApartAndAligned) {
  const BatchPlan plan = plan_batch(1000, 3);
  EXPECT_GE(plan.inputs, sizeof(BatchHeader));
  EXPECT_GE(plan.targets, plan.inputs + 1000);
  EXPECT_GE(plan.bytes, plan.targets + 3);
  EXPECT_EQ(plan.inputs % 256, 0u);
  EXPECT_EQ(plan.targets % 256, 0u);
}

TEST(LayerNormPlan, WarpsCoverARowAndBlocksFitTheDevice) {
  for (const std::size_t width : {1u, 40u, 257u, 768u, 1600u, 4096u, 6144u}) {
    const LayerNormPlan plan = plan_layer_norm(16384, width);
    const std::size_t row_columns = plan.warps * 32 * kLaneColumns;
    EXPECT_GE(row_columns, width);
    EXPECT_LT(row_columns, width + 32 * kLaneColumns);
    EXPECT_LE(plan.warps * plan.rows, std::size_t{kMostNormWarps}) << width;
    EXPECT_LE((plan.rows - 1) * 2 * row_columns * sizeof(float), std::size_t{48} << 10) << width;
    EXPECT_EQ(plan.partials, plan.blocks * 2 * width);
  }
  EXPECT_EQ(plan_layer_norm(3, 8).blocks, 1u);
  EXPECT_THROW(plan_layer_norm(3, 8192), UsageError);
}

TEST(SumPlans, EveryShapeHasAPartAndNoneTooMany) {
  for (const std::size_t rows : {0u, 1u, 64u, 65u, 100000u}) {
    EXPECT_GE(column_sum_parts(rows), 1u);
    EXPECT_LE(column_sum_parts(rows), 128u);
    EXPECT_GE(token_parts(rows), 1u);
    EXPECT_LE(token_parts(rows), 8u);
  }
}

// Computes a product as the library defines it: column-major, d = op(a) op(b).
std::vector<float> library_product(const ColumnMajor& m, const std::vector<float>& a,
                                   const std::vector<float>& b, std::size_t depth) {
  const auto at = [](const ColumnMajor::Matrix& x, const std::vector<float>& data, std::size_t row,
                     std::size_t column) {
    if (x.is_transposed) std::swap(row, column);
    EXPECT_LT(row, x.rows);
    EXPECT_LT(column, x.columns);
    return data[column * x.rows + row];
  };
  std::vector<float> d(m.d.rows * m.d.columns);
  for (std::size_t i = 0; i < m.d.rows; ++i) {
    for (std::size_t j = 0; j < m.d.columns; ++j) {
      for (std::size_t k = 0; k < depth; ++k) {
        d[j * m.d.rows + i] += at(m.a, a, i, k) * at(m.b, b, k, j);
      }
    }
  }
  return d;
}

TEST(ColumnMajor, GivesTheRowMajorProduct) {
  constexpr std::size_t kRows = 2, kColumns = 5, kDepth = 3;
  for (const Layout a_layout : {Layout::kPlain, Layout::kTransposed}) {
    for (const Layout b_layout : {Layout::kPlain, Layout::kTransposed}) {
      const auto a_value = [](std::size_t i, std::size_t k) {
        return static_cast<float>(10 * i + k + 1);
      };
      const auto b_value = [](std::size_t k, std::size_t j) {
        return static_cast<float>(7 * k + 3 * j + 2);
      };
      std::vector<float> a(kRows * kDepth), b(kDepth * kColumns), expected(kRows * kColumns);
      for (std::size_t k = 0; k < kDepth; ++k) {
        for (std::size_t i = 0; i < kRows; ++i) {
          a[a_layout == Layout::kPlain ? i * kDepth + k : k * kRows + i] = a_value(i, k);
        }
        for (std::size_t j = 0; j < kColumns; ++j) {
          b[b_layout == Layout::kPlain ? k * kColumns + j : j * kDepth + k] = b_value(k, j);
        }
      }
      for (std::size_t i = 0; i < kRows; ++i) {
        for (std::size_t j = 0; j < kColumns; ++j) {
          for (std::size_t k = 0; k < kDepth; ++k) {
            expected[i * kColumns + j] += a_value(i, k) * b_value(k, j);
          }
        }
      }
      MatmulShape shape{.rows = kRows, .columns = kColumns, .depth = kDepth};
      shape.a = a_layout;
      shape.b = b_layout;
      // The library's A is our b.
      EXPECT_EQ(library_product(to_column_major(shape), b, a, kDepth), expected);
    }
  }
}

TEST(HeadShape, JoinedIndexIsAPermutation) {
  const HeadShape shape{.parts = 3, .sequences = 2, .length = 5, .heads = 4, .head_width = 3};
  std::vector<int> used(shape.count());
  for (std::size_t i = 0; i < shape.count(); ++i) ++used.at(shape.joined_index(i));
  EXPECT_EQ(std::count(used.begin(), used.end(), 1), std::ptrdiff_t(shape.count()));
  // These are the indices of key (part 1) of sequence 1, head 2, position 4, column 1, split and in
  // the layout of linear layers.
  const std::size_t split = (((1 * 2 + 1) * 4 + 2) * 5 + 4) * 3 + 1;
  const std::size_t joined = (1 * 5 + 4) * (3 * 12) + 1 * 12 + 2 * 3 + 1;
  EXPECT_EQ(shape.joined_index(split), joined);
}

TEST(FilterShape, EveryWeightHasOnePackedPlace) {
  const FilterShape shape{.outputs = 2, .inputs = 3, .padded_inputs = 8, .kernel = 5};
  std::vector<int> used(shape.parameter_count());
  for (std::size_t i = 0; i < shape.packed_count(); ++i) {
    if (shape.input_of(i) < shape.inputs) ++used.at(shape.parameter_index(i));
  }
  EXPECT_EQ(std::count(used.begin(), used.end(), 1), std::ptrdiff_t(used.size()));
  // This is output 1, height 2, width 3, input 2.
  EXPECT_EQ(shape.parameter_index(((1 * 5 + 2) * 5 + 3) * 8 + 2), ((1u * 3 + 2) * 5 + 2) * 5 + 3);
}

}  // namespace
}  // namespace kolo::trainer::cuda
