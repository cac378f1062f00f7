#include "benchmarks/common/exchange.h"

#include <algorithm>
#include <cstdint>
#include <thread>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo::bench {

void max_over_ranks(Runtime& runtime, std::span<double> values) {
  runtime
      .all_reduce(fmt::format("bench max of {}", values.size()),
                  {values.data(), values.size(), DType::kFloat64}, ReduceOp::kMax)
      .wait();
}

std::vector<std::string> all_gather(Runtime& runtime, std::string_view call_name,
                                    const std::string& mine) {
  const auto rank = static_cast<std::size_t>(runtime.rank());
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(runtime.world_size()));
  lengths[rank] = static_cast<std::int64_t>(mine.size());
  runtime
      .all_reduce(fmt::format("bench {}, lengths", call_name),
                  {lengths.data(), lengths.size(), DType::kInt64}, ReduceOp::kSum)
      .wait();

  // Each rank has a slot for its bytes. The slot is zero on all other ranks, so the sum gathers
  // them.
  const auto slot = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<std::uint8_t> bytes(slot * lengths.size());
  std::copy(mine.begin(), mine.end(), bytes.begin() + static_cast<std::ptrdiff_t>(rank * slot));
  runtime
      .all_reduce(fmt::format("bench {}", call_name), {bytes.data(), bytes.size(), DType::kUInt8},
                  ReduceOp::kSum)
      .wait();

  std::vector<std::string> all;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(i * slot);
    all.emplace_back(begin, begin + lengths[i]);
  }
  return all;
}

std::string network_address(const Runtime& runtime) {
  if (runtime.num_nodes() == 1) return "127.0.0.1";
  const std::string address = runtime.network_address();
  if (!address.empty()) return address;
  throw KoloError({.code = ErrorCode::kIo,
                   .rank = runtime.rank(),
                   .what = "no address of this host answers to the other nodes over TCP, and the "
                           "compared libraries need one"});
}

void begin_together(Runtime& runtime, std::chrono::steady_clock::time_point ended) {
  constexpr std::chrono::microseconds kRestOfLinks{200};
  if (runtime.num_nodes() > 1) std::this_thread::sleep_until(ended + kRestOfLinks);
  runtime.barrier().wait();
}

}  // namespace kolo::bench
