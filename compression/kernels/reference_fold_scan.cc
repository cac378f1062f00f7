#include "compression/kernels/fold_scan.h"
#include "compression/kernels/radix_select.h"

namespace kolo::reference {
namespace {

// The value that the residual takes for element i.
float update(const FoldScan& scan, std::size_t i) {
  const float gradient = scan.scale * scan.gradient[i];
  const FoldMomentum& momentum = scan.momentum;
  if (momentum.before == nullptr) return gradient;
  const float before = momentum.before[i];
  if (!momentum.nesterov) {
    return momentum.after[i] = radix::accumulate(momentum.factor * before, gradient);
  }
  momentum.after[i] = radix::canonical(momentum.factor * (before + gradient));
  return momentum.after[i] + gradient;
}

}  // namespace

std::size_t fold_scan(const FoldScan& scan, const Candidates& out) {
  for (std::size_t i = scan.begin; i < scan.end; ++i) {
    scan.sums[i] = radix::accumulate(scan.residual[i], update(scan, i));
  }
  return reference::rescan(scan, out);
}

std::size_t rescan(const FoldScan& scan, const Candidates& out) {
  std::size_t found = 0;
  for (std::size_t i = scan.begin; i < scan.end; ++i) {
    if (radix::key_of(scan.sums[i]) < scan.least_key) continue;
    out.indices[found] = static_cast<std::uint32_t>(i);
    out.values[found] = scan.sums[i];
    ++found;
  }
  return found;
}

std::size_t keep_candidates(const Candidates& from, std::size_t count, std::uint32_t least_key,
                            const Candidates& to, std::size_t) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (radix::key_of(from.values[i]) < least_key) continue;
    to.indices[kept] = from.indices[i];
    to.values[kept] = from.values[i];
    ++kept;
  }
  return kept;
}

}  // namespace kolo::reference
