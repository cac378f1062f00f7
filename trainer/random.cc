#include "trainer/random.h"

#include <numeric>
#include <utility>

namespace kolo::trainer {

std::vector<std::size_t> permutation(std::size_t count, std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Random random(seed, stream);
  for (std::size_t left = count; left > 1; --left) {
    std::swap(order[left - 1], order[random.below(left)]);
  }
  return order;
}

}  // namespace kolo::trainer
