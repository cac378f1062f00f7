// A training step in C++17, with the installed Kolo.

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include <kolo/kolo.h>

namespace {

/// Returns the average of the ranks' values, as a vector of equal elements.
std::vector<double> averaged(kolo::Group& group, double value) {
  std::vector<double> flat(5, value);
  const std::vector<std::size_t> sizes = {2, 3};
  kolo::GradientSet gradients =
      group.register_gradients("model", kolo::flat_gradients(flat, sizes));
  gradients.ready(0);
  gradients.ready(1);
  gradients.wait();
  return flat;
}

/// Returns the text of the error that names differing weights.
std::string difference(kolo::Group& group, std::vector<double> weights) {
  const std::vector<kolo::NamedTensor> tensors = {{"weights", weights}};
  kolo::check_equal(group, "all weights", tensors);
  weights[1] = group.rank();
  try {
    kolo::check_equal(group, "all weights", tensors);
  } catch (const kolo::KoloError& error) {
    return error.error().code == kolo::ErrorCode::kMismatch ? error.what() : "";
  }
  return "";
}

}  // namespace

int main() {
  kolo::Options options;
  options.calibrate = "off";
  auto runtime = kolo::Runtime::from_environment(options);
  const int size = runtime.world_size();
  std::vector<float> values(1000, 1.0F);
  runtime.all_reduce("values", values).wait();
  std::printf("the sum over %d rank(s) is %g\n", size, static_cast<double>(values.front()));
  const std::vector<double> weights = averaged(runtime, runtime.rank());
  const bool finds_difference = !difference(runtime, weights).empty();
  const bool is_right = values.front() == static_cast<float>(size) &&
                        weights == std::vector<double>(5, (size - 1) / 2.0) &&
                        finds_difference == (size > 1);
  return is_right ? 0 : 1;
}
