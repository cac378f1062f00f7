#include "fusion/mark_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace kolo {
namespace {

using Order = std::vector<std::size_t>;

Order observed(const std::vector<Order>& iterations) {
  MarkOrder marks(iterations[0].size());
  for (const Order& iteration : iterations) {
    marks.begin_iteration();
    for (const std::size_t gradient : iteration) marks.mark(gradient);
  }
  return marks.order();
}

TEST(MarkOrder, IsThatOfAllButTheFirstIteration) {
  EXPECT_EQ(observed({{0, 1, 2, 3}, {2, 0, 3, 1}, {2, 0, 3, 1}, {2, 0, 3, 1}}),
            (Order{2, 0, 3, 1}));
}

TEST(MarkOrder, OneOddIterationChangesNothing) {
  EXPECT_EQ(observed({{0, 1, 2}, {1, 2, 0}, {0, 2, 1}, {1, 2, 0}}), (Order{1, 2, 0}));
}

// Each of 0, 1 and 2 is once first, once second and once third.
TEST(MarkOrder, TheLastRegisteredIsFirstAmongEquals) {
  EXPECT_EQ(observed({{0, 1, 2, 3}, {0, 1, 2, 3}, {1, 2, 0, 3}, {2, 0, 1, 3}}),
            (Order{2, 1, 0, 3}));
}

}  // namespace
}  // namespace kolo
