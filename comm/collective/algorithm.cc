#include "comm/collective/algorithm.h"

#include <algorithm>

#include "comm/base/check.h"

namespace kolo {

std::size_t Stage::position(int rank) const {
  const auto it = std::find(group.begin(), group.end(), rank);
  ensure(it != group.end(), "rank is not in the group of its stage");
  return static_cast<std::size_t>(it - group.begin());
}

}  // namespace kolo
