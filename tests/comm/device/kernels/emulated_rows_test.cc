// Sums and spreads of rows on the emulated device, bit for bit as their CPU references.

#include <gtest/gtest.h>

#include "comm/device/kernels/rows.h"
#include "tests/comm/device/kernels/row_cases.h"
#include "tests/support/cuda_emulator/device.h"

namespace kolo {
namespace {

TEST(EmulatedRowsTest, SumsOfGroupsAsOnTheHost) {
  std::uint32_t seed = test::kRowSeed;
  test::expect_row_sums([&](test::RowSums on_device) {
    ++seed;
    emulator::Device device({.seed = seed, .resident_blocks = 1 + seed % 6});
    launch_row_sums(on_device.groups(), on_device.rows.data() + on_device.rows_at, on_device.width,
                    on_device.dtype, on_device.scale, on_device.sums.data() + on_device.sums_at,
                    nullptr);
    return on_device.sums;
  });
}

TEST(EmulatedRowsTest, SpreadOverATableAsOnTheHost) {
  std::uint32_t seed = test::kRowSeed;
  test::expect_row_spread([&](test::RowSpread on_device) {
    ++seed;
    emulator::Device device({.seed = seed, .resident_blocks = 1 + seed % 6});
    launch_row_spread(on_device.indices, on_device.rows.data() + on_device.rows_at,
                      on_device.row_bytes, on_device.table.data() + on_device.table_at,
                      on_device.height, nullptr);
    return on_device.table;
  });
}

}  // namespace
}  // namespace kolo
