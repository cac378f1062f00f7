#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/schedule/executor.h"
#include "comm/transport/peer_memory.h"
#include "runtime/calibration/probe.h"
#include "topology/link_fit.h"

namespace kolo {
namespace {

constexpr std::size_t kSteps = 256;  // enough to make the fixed cost of a bucket negligible
constexpr int kRuns = 32;
/// Pages read at once, too few for a huge page.
constexpr std::size_t kReadPages = 16;
constexpr std::size_t kSmallPageBytes = 4096;

/// A chain of copies of one cache line; each copy reads the result of the previous one.
Schedule chain(int rank) {
  const BucketLayout layout;
  const std::size_t line = kWireAlignment / size_of(layout.dtype);
  Schedule schedule{.rank = rank,
                    .algorithm = "chain",
                    .layout = layout,
                    .has_bucket = false,
                    .scratch_count = (kSteps + 1) * line,
                    .steps = {}};
  const auto range = [&](StepId id) {
    return Range{.rank = rank, .region = Region::kScratch, .offset = id * line, .count = line};
  };
  for (StepId id = 0; id < kSteps; ++id) {
    Step copy{.kind = StepKind::kCopy, .target = range(id + 1), .sources = {range(id)}};
    if (id > 0) copy.after = {id - 1};
    schedule.steps.push_back(std::move(copy));
  }
  return schedule;
}

}  // namespace

std::optional<PrivateReads> probe_private_reads(const Clock& clock) {
  const PeerMemory self = PeerMemory::of_this_process();
  const std::vector<std::byte> from(kReadPages * kSmallPageBytes, std::byte{1});
  std::vector<std::byte> to(from.size(), std::byte{1});
  const auto read_us = [&](std::size_t bytes) -> std::optional<double> {
    std::vector<double> reads_us;
    for (int run = 0; run < kRuns; ++run) {
      const Stopwatch watch(clock);
      const auto address = reinterpret_cast<std::uint64_t>(from.data());
      if (self.read(address, std::span(to).first(bytes)) != 0) return std::nullopt;
      reads_us.push_back(watch.us());
    }
    return quantile(std::move(reads_us), 0.25);
  };
  const auto call_us = read_us(sizeof(std::uint64_t));
  const auto pages_us = read_us(from.size());
  if (!call_us || !pages_us) return std::nullopt;
  return PrivateReads{
      .call_us = *call_us,
      .page_us = std::max(0.0, *pages_us - *call_us) / static_cast<double>(kReadPages)};
}

double probe_step_us(Transport& transport, const Clock& clock) {
  constexpr BucketId kBucket = 0;
  Executor executor(transport);
  executor.add(chain(transport.rank()), {.name = "calibration", .bucket = kBucket});
  std::vector<double> steps_us;
  for (int run = 0; run < kRuns; ++run) {
    const Stopwatch watch(clock);
    executor.start(kBucket, static_cast<std::uint64_t>(run));
    while (executor.busy()) executor.poll();
    steps_us.push_back(watch.us() / kSteps);
    executor.take_finished();
  }
  return quantile(std::move(steps_us), 0.25);
}

}  // namespace kolo
