// Compares the kernels of image models with the host trainer's layers. Bounds are those of
// kernels_test.cc.

#include <algorithm>
#include <cmath>
#include <limits>
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

class BatchNormKernelTest : public ImageKernelTest {
 protected:
  static constexpr std::size_t kSamples = 6, kPixels = 35, kRows = kSamples * kPixels;

  /// The memory of a batch norm on the device, with the parameters and buffers of `host`.
  struct Norm {
    DeviceMemory gain, bias, running_mean, running_variance, dgain, dbias;
    DeviceMemory mean, rstd, factors, y, dx, partials;
    BatchNormForward forward;
  };

  Norm make_norm(const ParameterSet& host, std::size_t channels) {
    const auto copy = [&](std::span<const float> values) {
      return upload(std::vector<float>(values.begin(), values.end()));
    };
    const std::size_t row = channels * sizeof(float), bytes = kRows * channels * size_of(dtype());
    Norm norm{.gain = copy(host[0].value()),
              .bias = copy(host[1].value()),
              .running_mean = copy(host.buffers()[0].value.span()),
              .running_variance = copy(host.buffers()[1].value.span()),
              .dgain = room(row),
              .dbias = room(row),
              .mean = room(row),
              .rstd = room(row),
              .factors = room(3 * row),
              .y = room(bytes),
              .dx = room(bytes),
              .partials = {},
              .forward = {}};
    norm.forward = {.dtype = dtype(),
                    .rows = kRows,
                    .rows_per_sample = kPixels,
                    .channels = channels,
                    .gain = floats(norm.gain),
                    .bias = floats(norm.bias),
                    .running_mean = floats(norm.running_mean),
                    .running_variance = floats(norm.running_variance),
                    .mean = floats(norm.mean),
                    .rstd = floats(norm.rstd),
                    .factors = floats(norm.factors),
                    .y = norm.y.data()};
    norm.partials = room(norm.forward.partial_count() * sizeof(float));
    norm.forward.partials = floats(norm.partials);
    return norm;
  }

  /// Compares a pass over `samples` samples. The values are far from zero, where the sum of squares
  /// alone would lose the variance; the mean then has an error of 20 roundings of a value.
  void expect_same_pass(BatchNorm& layer, const ParameterSet& host, Norm& norm,
                        std::uint32_t samples, Into mode) {
    const std::size_t channels = norm.forward.channels, count = kRows * channels;
    auto values = random_values(count, 10 + samples);
    for (float& value : values) value = 20.0f + 2.0f * value;
    const std::vector<float> x = rounded(values), dy = rounded(random_values(count, 20 + samples));
    const DeviceMemory dev_x = upload_activations(x), dev_dy = upload_activations(dy),
                       header = upload(std::vector<BatchHeader>{{.targets = samples}});
    norm.forward.header = reinterpret_cast<const BatchHeader*>(header.data());
    norm.forward.x = dev_x.data();
    batch_norm(native(), norm.forward);
    expect_close(activations(norm.y, count), layer.forward(x, {.samples = samples}), norm_bound(),
                 "y");
    expect_row(norm.running_mean, host.buffers()[0].value.span(), "running mean");
    expect_row(norm.running_variance, host.buffers()[1].value.span(), "running variance");
    batch_norm_backward(native(), {.of = norm.forward,
                                   .dy = dev_dy.data(),
                                   .dx = norm.dx.data(),
                                   .mode = mode,
                                   .dgain = floats(norm.dgain),
                                   .dbias = floats(norm.dbias)});
    expect_close(activations(norm.dx, count), layer.backward(dy), norm_bound(), "dx");
    expect_row(norm.dgain, host[0].gradient(), "dgain");
    expect_row(norm.dbias, host[1].gradient(), "dbias");
  }

  float norm_bound() const { return bound(20 * kRows); }
  void expect_row(const DeviceMemory& memory, std::span<const float> expected,
                  const std::string& what) {
    // These are float32 sums of exact values.
    expect_close(download<float>(memory.data(), expected.size()), expected, 20 * kRows * 0x1.0p-23f,
                 what);
  }
};

// Batches of whole and partial size, and one of padding only, which leaves the running statistics.
TEST_P(BatchNormKernelTest, ForwardAndBackward) {
  const std::uint32_t batches[] = {6, 4, 0, 1};
  for (const std::size_t channels : {5u, 16u, 264u}) {
    SCOPED_TRACE(channels);
    ParameterSet host(3);
    BatchNorm layer(host, "norm",
                    {.samples = kSamples, .rows_per_sample = kPixels, .channels = channels});
    host.own_gradients();
    host.accumulate(std::size(batches));
    for (std::size_t i = 0; i < 2; ++i) {
      std::ranges::copy(random_values(channels, 4 + i), host[i].value().begin());
    }
    Norm norm = make_norm(host, channels);
    Into mode = Into::kOverwrite;
    for (const std::uint32_t samples : batches) {
      SCOPED_TRACE(samples);
      expect_same_pass(layer, host, norm, samples, mode);
      mode = Into::kAdd;
    }
    std::vector<float> x = rounded(random_values(kRows * channels, 30));
    x[2 * channels + 3] = -std::numeric_limits<float>::infinity();
    const DeviceMemory overflow = upload_activations(x),
                       header = upload(std::vector<BatchHeader>{{.targets = 1}});
    norm.forward.header = reinterpret_cast<const BatchHeader*>(header.data());
    norm.forward.x = overflow.data();
    batch_norm(native(), norm.forward);
    layer.forward(x, {.samples = 1});
    for (const Buffer& buffer : host.buffers()) {
      EXPECT_TRUE(std::isfinite(buffer.value.span()[3])) << buffer.name;
    }
    expect_row(norm.running_mean, host.buffers()[0].value.span(), "mean after an overflow");
    expect_row(norm.running_variance, host.buffers()[1].value.span(), "variance after it");
    x = rounded(random_values(kRows * channels, 30));
    const DeviceMemory dev_x = upload_activations(x);
    norm.forward.header = nullptr;  // nothing counts rows outside training
    norm.forward.x = dev_x.data();
    norm.forward.is_training = false;
    batch_norm(native(), norm.forward);
    expect_close(activations(norm.y, x.size()), layer.forward(x, {.is_training = false}),
                 norm_bound(), "held out");
    expect_row(norm.running_mean, host.buffers()[0].value.span(), "running mean");
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

INSTANTIATE_TEST_SUITE_P(Types, BatchNormKernelTest, testing::ValuesIn(kActivationTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });
INSTANTIATE_TEST_SUITE_P(Types, ImageKernelTest, testing::ValuesIn(kActivationTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace kolo::trainer::cuda
