#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <vector>

#include "comm/base/check.h"
#include "comm/device/kernels/top_k.h"
#include "comm/kernels/radix_key.h"

namespace kolo {

void check_top_k(const TopK& task, Span<const std::byte> workspace) {
  check(task.count < std::size_t{1} << 31, "top-k takes fewer than 2^31 elements");
  check(task.k <= task.count, "top-k cannot select more elements than there are");
  check(task.k == 0 || workspace.size() >= top_k_workspace_bytes(task.count),
        "top-k needs a larger workspace");
  const auto bits = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
  const std::uintptr_t all = bits(task.residual) | bits(task.velocity) | bits(task.next_velocity) |
                             (task.k == 0 ? 0 : bits(task.sums) | bits(workspace.data()));
  check(access::is_aligned(all, access::kBytes),
        "all memory of top-k but the gradient must be aligned to 16 bytes");
}

void top_k_on_host(const TopK& task) {
  bool bad = false;
  for (std::size_t i = 0; i < task.count; ++i) {
    float update = task.scale * task.gradient[i];
    if (task.velocity != nullptr) {
      update = radix::accumulate(task.momentum * task.velocity[i], update);
      task.next_velocity[i] = update;
    }
    task.sums[i] = radix::accumulate(task.residual[i], update);
    bad |= radix::key_of(task.sums[i]) >= radix::kInfinityKey;
  }
  // Folds on several streams may set the same flag.
  if (bad && task.non_finite != nullptr) std::atomic_ref(*task.non_finite).store(1);
  std::vector<std::uint32_t> order(task.count);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::uint32_t i) { return radix::key_of(task.sums[i]); });
  order.resize(task.k);
  std::ranges::sort(order);
  for (std::size_t j = 0; j < task.k; ++j) {
    task.indices[j] = order[j];
    task.values[j] = task.sums[order[j]];
  }
}

}  // namespace kolo
