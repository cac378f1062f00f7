#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
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
  for (const std::size_t vocabulary : {0u, 50257u}) {
    const std::size_t input_bytes = vocabulary == 0 ? 1000 : 4000;
    const BatchPlan plan = plan_batch({.inputs = 1000, .vocabulary = vocabulary, .rows = 3});
    EXPECT_GE(plan.inputs, sizeof(BatchHeader));
    EXPECT_GE(plan.order, plan.inputs + input_bytes);
    EXPECT_GE(plan.targets, plan.order + (vocabulary == 0 ? 0 : input_bytes));
    EXPECT_GE(plan.bytes, plan.targets + 3 * sizeof(std::int32_t));
    for (const std::size_t offset : {plan.inputs, plan.order, plan.targets}) {
      EXPECT_EQ(offset % 256, 0u);
    }
  }
}

TEST(PassCounter, NamesTheFirstAndTheLastPassOfEachStep) {
  for (const std::size_t passes : {1u, 2u, 4u}) {
    PassCounter counter;
    counter.set(passes);
    std::vector<bool> kinds(kPassKinds);
    for (std::size_t pass = 0; pass < 3 * passes; ++pass) {
      const GradientPass next = counter.next();
      EXPECT_EQ(next.is_first, pass % passes == 0) << pass;
      EXPECT_EQ(next.is_last, pass % passes == passes - 1) << pass;
      kinds.at(kind_of(next)) = true;
    }
    EXPECT_EQ(std::ranges::count(kinds, true), static_cast<int>(std::min<std::size_t>(passes, 3)));
  }
}

TEST(OrderOfRows, IsByTokenThenByRow) {
  const std::vector<std::int32_t> tokens = {4, 0, 50'256, 4, 2, 0, 4};
  std::vector<std::uint32_t> ends(50'257, 9);  // of an earlier batch
  std::vector<std::int32_t> order(tokens.size());
  for (int repetition = 0; repetition < 2; ++repetition) {
    order_rows(tokens, ends, order);
    EXPECT_EQ(order, (std::vector<std::int32_t>{1, 5, 4, 0, 3, 6, 2}));
  }
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
    EXPECT_GE(token_slices(rows) * kSliceRows, rows);
    EXPECT_LT(token_slices(rows) * kSliceRows, rows + kSliceRows);
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
    return data.at(column * x.stride + row);
  };
  std::vector<float> d(m.d.stride * m.d.columns);
  for (std::size_t i = 0; i < m.d.rows; ++i) {
    for (std::size_t j = 0; j < m.d.columns; ++j) {
      for (std::size_t k = 0; k < depth; ++k) {
        d[j * m.d.stride + i] += at(m.a, a, i, k) * at(m.b, b, k, j);
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

// The product of a 2 x 3 and a 3 x 2 matrix. In memory, rows of a have 5 elements, and rows of d 4.
TEST(ColumnMajor, SkipsTheElementsBetweenRows) {
  MatmulShape shape{.rows = 2, .columns = 2, .depth = 3};
  shape.a_stride = 5;
  shape.d_stride = 4;
  const std::vector<float> plain = {1, 2, 3, -1, -1, 4, 5, 6, -1, -1};
  const std::vector<float> transposed = {1, 4, -1, -1, -1, 2, 5, -1, -1, -1, 3, 6, -1, -1, -1};
  const std::vector<float> b = {1, 10, 2, 20, 3, 30};
  const std::vector<float> expected = {14, 140, 0, 0, 32, 320, 0, 0};
  EXPECT_EQ(library_product(to_column_major(shape), b, plain, 3), expected);
  shape.a = Layout::kTransposed;
  EXPECT_EQ(library_product(to_column_major(shape), b, transposed, 3), expected);
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
