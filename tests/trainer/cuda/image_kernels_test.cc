// Compares the kernels of image models with the host trainer's layers. Bounds are those of
// kernels_test.cc.

#include <algorithm>
#include <span>

#include "tests/trainer/cuda/cuda_test.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/cuda/kernels/batch_norm.h"
#include "trainer/layers/normalization.h"

namespace kolo::trainer::cuda {
namespace {

class ImageKernelTest : public CudaTest, public testing::WithParamInterface<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  float bound(std::size_t terms) const {
    return 2.0f * unit_roundoff(dtype()) + static_cast<float>(terms) * 0x1.0p-23f;
  }
  DeviceMemory upload_activations(std::span<const float> values) {
    return upload(encode(dtype(), values));
  }
  std::vector<float> activations(const DeviceMemory& memory, std::size_t count) {
    return decode(dtype(), download<std::byte>(memory.data(), count * size_of(dtype())));
  }
  std::vector<float> rounded(std::vector<float> values) const {
    return decode(dtype(), encode(dtype(), values));
  }
};

// Batches of whole and partial size, and one of padding only, which leaves the running statistics.
// The values are far from zero, where the sum of squares alone would lose the variance.
TEST_P(ImageKernelTest, BatchNormForwardAndBackward) {
  constexpr std::size_t kSamples = 6, kPixels = 35, kRows = kSamples * kPixels;
  const std::vector<std::uint32_t> batches = {6, 4, 0, 1};
  for (const std::size_t channels : {5u, 16u, 264u}) {
    SCOPED_TRACE(channels);
    const std::size_t count = kRows * channels;
    ParameterSet host(3);
    BatchNorm layer(host, "norm",
                    {.samples = kSamples, .rows_per_sample = kPixels, .channels = channels});
    host.own_gradients();
    host.accumulate(batches.size());
    for (std::size_t i = 0; i < 2; ++i) {
      std::ranges::copy(random_values(channels, 4 + i), host[i].value().begin());
    }
    const DeviceMemory gain = upload(
                           std::vector<float>(host[0].value().begin(), host[0].value().end())),
                       bias = upload(
                           std::vector<float>(host[1].value().begin(), host[1].value().end())),
                       running_mean = upload(std::vector<float>(channels, 0.0f)),
                       running_variance = upload(std::vector<float>(channels, 1.0f)),
                       mean = room(channels * 4), rstd = room(channels * 4),
                       factors = room(3 * channels * 4), y = room(count * size_of(dtype())),
                       dx = room(count * size_of(dtype())), dgain = room(channels * 4),
                       dbias = room(channels * 4);
    BatchNormForward forward{.dtype = dtype(),
                             .rows = kRows,
                             .rows_per_sample = kPixels,
                             .channels = channels,
                             .gain = floats(gain),
                             .bias = floats(bias),
                             .running_mean = floats(running_mean),
                             .running_variance = floats(running_variance),
                             .mean = floats(mean),
                             .rstd = floats(rstd),
                             .factors = floats(factors),
                             .y = y.data()};
    const DeviceMemory partials = room(forward.partial_count() * sizeof(float));
    forward.partials = floats(partials);
    for (std::size_t pass = 0; pass < batches.size(); ++pass) {
      SCOPED_TRACE(batches[pass]);
      auto values = random_values(count, 10 + pass);
      for (float& value : values) value = 20.0f + 2.0f * value;
      const std::vector<float> x = rounded(values), dy = rounded(random_values(count, 20 + pass));
      const DeviceMemory dev_x = upload_activations(x), dev_dy = upload_activations(dy),
                         header = upload(std::vector<BatchHeader>{{.targets = batches[pass]}});
      const auto expected_y = layer.forward(x, {.samples = batches[pass]});
      forward.header = reinterpret_cast<const BatchHeader*>(header.data());
      forward.x = dev_x.data();
      batch_norm(native(), forward);
      // The mean of values near 20 has an error of 20 roundings of a value.
      expect_close(activations(y, count), expected_y, bound(20 * kRows), "y");
      expect_close(download<float>(running_mean.data(), channels), host.buffers()[0].value.span(),
                   0x1.0p-20f, "running mean");
      expect_close(download<float>(running_variance.data(), channels),
                   host.buffers()[1].value.span(), 0x1.0p-20f, "running variance");
      const auto expected_dx = layer.backward(dy);
      batch_norm_backward(native(), {.of = forward,
                                     .dy = dev_dy.data(),
                                     .dx = dx.data(),
                                     .mode = pass == 0 ? Into::kOverwrite : Into::kAdd,
                                     .dgain = floats(dgain),
                                     .dbias = floats(dbias)});
      expect_close(activations(dx, count), expected_dx, bound(20 * kRows), "dx");
      expect_close(download<float>(dgain.data(), channels), host[0].gradient(), bound(20 * kRows),
                   "dgain");
      expect_close(download<float>(dbias.data(), channels), host[1].gradient(), bound(20 * kRows),
                   "dbias");
    }
    const std::vector<float> x = rounded(random_values(count, 30));
    const DeviceMemory dev_x = upload_activations(x);
    forward.x = dev_x.data();
    forward.is_training = false;
    const auto before = download<float>(running_mean.data(), channels);
    batch_norm(native(), forward);
    expect_close(activations(y, count), layer.forward(x, {.is_training = false}), bound(20 * kRows),
                 "held out");
    EXPECT_EQ(download<float>(running_mean.data(), channels), before);
  }
}

TEST_P(ImageKernelTest, SumsAreExactSumsRounded) {
  for (const std::size_t count : {13u, 4096u}) {
    const std::vector<float> a = rounded(random_values(count, 1)),
                             b = rounded(random_values(count, 2));
    const DeviceMemory dev_a = upload_activations(a), dev_b = upload_activations(b),
                       dev_y = room(count * size_of(dtype()));
    std::vector<float> sums(count);
    for (std::size_t i = 0; i < count; ++i) sums[i] = a[i] + b[i];
    add_elements(native(), dtype(), count, dev_a.data(), dev_b.data(), dev_y.data());
    EXPECT_EQ(activations(dev_y, count), rounded(sums));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ImageKernelTest, testing::ValuesIn(kActivationTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace kolo::trainer::cuda
