#include "trainer/data/sample_order.h"

#include <utility>

#include "trainer/random.h"

namespace kolo::trainer {
namespace {

// Streams of the seed below this one initialise parameters.
constexpr std::uint64_t kEpochStreams = std::uint64_t{1} << 32;

}  // namespace

SampleOrder::Indices SampleOrder::of(std::uint64_t epoch) const {
  if (!seed_) return nullptr;
  const MutexLock lock(mutex_);
  for (const Known& known : known_) {
    if (known.indices && known.epoch == epoch) return known.indices;
  }
  known_[1] = std::move(known_[0]);
  known_[0] = {.epoch = epoch,
               .indices = std::make_shared<const std::vector<std::size_t>>(
                   permutation(samples_, *seed_, kEpochStreams + epoch))};
  return known_[0].indices;
}

}  // namespace kolo::trainer
