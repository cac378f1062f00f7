// Sums and spreads of rows against their CPU references, bit by bit.

#include "tests/comm/device/kernels/row_cases.h"
#include "tests/support/gpu_test.h"

namespace kolo {
namespace {

class RowsGpuTest : public test::GpuTest {
 protected:
  template <typename T>
  static std::span<const T> as_list(const DeviceMemory& memory, std::size_t count) {
    return {reinterpret_cast<const T*>(memory.data()), count};
  }
};

TEST_F(RowsGpuTest, SumsOfGroupsAsOnTheHost) {
  test::expect_row_sums([&](const test::RowSums& host) {
    const DeviceMemory positions = upload(std::as_bytes(std::span(host.positions)));
    const DeviceMemory ends = upload(std::as_bytes(std::span(host.ends)));
    const DeviceMemory rows = upload(host.rows);
    const DeviceMemory sums = upload(host.sums);
    const RowGroups groups{.count = host.count,
                           .positions = as_list<std::size_t>(positions, host.positions.size()),
                           .ends = as_list<std::size_t>(ends, host.ends.size())};
    device->kernels().sum_rows(*stream, groups, rows.data() + host.rows_at, host.width, host.dtype,
                               host.scale, sums.data() + host.sums_at);
    return download(sums, host.sums.size());
  });
}

TEST_F(RowsGpuTest, SpreadOverATableAsOnTheHost) {
  test::expect_row_spread([&](const test::RowSpread& host) {
    const DeviceMemory indices = upload(std::as_bytes(std::span(host.indices)));
    const DeviceMemory rows = upload(host.rows);
    const DeviceMemory table = upload(host.table);
    device->kernels().spread_rows(*stream, as_list<std::int64_t>(indices, host.indices.size()),
                                  rows.data() + host.rows_at, host.row_bytes,
                                  table.data() + host.table_at, host.height);
    return download(table, host.table.size());
  });
}

}  // namespace
}  // namespace kolo
