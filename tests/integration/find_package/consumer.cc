#include <cstdio>
#include <vector>

#include <kolo/kolo.h>

int main() {
  auto runtime = kolo::Runtime::from_environment();
  std::vector<float> values(1000, 1.0F);
  runtime.all_reduce("values", {values.data(), values.size()});
  std::printf("the sum over %d rank(s) is %g\n", runtime.world_size(), values.front());
  return values.front() == static_cast<float>(runtime.world_size()) ? 0 : 1;
}
