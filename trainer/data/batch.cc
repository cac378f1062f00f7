#include "trainer/data/batch.h"

#include <algorithm>

namespace kolo::trainer {
namespace {

bool is_same(const Field& a, const Field& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.values == b.values;
}

}  // namespace

bool is_compatible(const SampleFormat& a, const SampleFormat& b) {
  return std::ranges::equal(a.inputs, b.inputs, is_same) &&
         std::ranges::equal(a.targets, b.targets, is_same);
}

}  // namespace kolo::trainer
