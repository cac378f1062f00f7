// Compares device layers with host layers, with equal parameters and inputs, in float32. Sums of n
// terms of size 1 differ by at most n² roundings of 2^-24, and by less than 1e-4 here.

#include "tests/trainer/cuda/cuda_test.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/compute/device.h"
#include "trainer/cuda/layers/linear.h"
#include "trainer/cuda/layers/transformer.h"
#include "trainer/layers/attention.h"
#include "trainer/layers/elementwise.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/transformer_blocks.h"

namespace kolo::trainer::cuda {
namespace {

constexpr float kBound = 1e-4f;

class LayerTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    context_ = std::make_unique<Context>(*device_, *stream_, DType::kFloat32);
  }

  // Copies `host` to the device, with separate gradients.
  std::unique_ptr<DeviceParameters> on_device(ParameterSet& host) {
    auto parameters = std::make_unique<DeviceParameters>(host, *device_, *stream_, DType::kFloat32);
    parameters->upload();
    gradients_ = room(parameters->plan().count * sizeof(float));
    for (std::size_t i = 0; i < host.size(); ++i) {
      (*parameters)[i].gradient = floats(gradients_) + parameters->plan().offsets[i];
    }
    return parameters;
  }

  void expect_gradients(const DeviceParameters& parameters, const ParameterSet& host) {
    for (std::size_t i = 0; i < host.size(); ++i) {
      expect_close(download<float>(parameters[i].gradient, parameters[i].size), host[i].gradient(),
                   kBound, host[i].name());
    }
  }

  std::unique_ptr<Context> context_;
  DeviceMemory gradients_;
};

// In float32, GELU is a separate kernel. The tests of models cover the fused kernel.
TEST_F(LayerTest, LinearWithGeluAndTheWayBackThroughIt) {
  for (const std::size_t inner : {24u, 13u}) {
    constexpr std::size_t kRows = 9, kInputs = 16, kOutputs = 20;
    trainer::Device host_device;
    ParameterSet host(3);
    trainer::Linear first(host_device, host, "a",
                          {.rows = kRows, .inputs = kInputs, .outputs = inner, .deviation = 0.3f});
    trainer::Gelu gelu(kRows * inner);
    trainer::Linear second(
        host_device, host, "b",
        {.rows = kRows, .inputs = inner, .outputs = kOutputs, .deviation = 0.3f});
    host.own_gradients();
    const auto x = random_values(kRows * kInputs, 1), dy = random_values(kRows * kOutputs, 2);
    const auto y = second.forward(gelu.forward(first.forward(x, {}), {}), {});
    const auto dx = first.backward(gelu.backward(second.backward(dy)));

    const auto parameters = on_device(host);
    Linear dev_first(
        *context_, *parameters, (*parameters)[0], &(*parameters)[1],
        {.rows = kRows, .inputs = kInputs, .outputs = inner, .activation = Activation::kGelu});
    Linear dev_second(*context_, *parameters, (*parameters)[2], &(*parameters)[3],
                      {.rows = kRows,
                       .inputs = inner,
                       .outputs = kOutputs,
                       .activation = Activation::kNone,
                       .input_activation = Activation::kGelu});
    const std::size_t inner_bytes = kRows * inner * sizeof(float);
    const DeviceMemory dev_x = upload(x), dev_dy = upload(dy), before = room(inner_bytes),
                       hidden = room(inner_bytes), dhidden = room(inner_bytes),
                       dev_y = room(dy.size() * 4), dev_dx = room(x.size() * 4);
    dev_first.forward({.x = dev_x.data(), .y = hidden.data(), .before = before.data()});
    dev_second.forward({.x = hidden.data(), .y = dev_y.data()});
    dev_second.backward_parameters(hidden.data(), dev_dy.data());
    dev_second.backward_input(dev_dy.data(), dhidden.data(), before.data());
    dev_first.backward_parameters(dev_x.data(), dhidden.data());
    dev_first.backward_input(dhidden.data(), dev_dx.data());
    expect_close(download<float>(dev_y.data(), y.size()), y, kBound, "y");
    expect_close(download<float>(dev_dx.data(), dx.size()), dx, kBound, "dx");
    expect_gradients(*parameters, host);
  }
}

TEST_F(LayerTest, TransformerBlockWithAttention) {
  const SelfAttention::Options attention{.sequences = 2, .length = 7, .width = 24, .heads = 3};
  const std::size_t rows = attention.sequences * attention.length;
  trainer::Device host_device;
  ParameterSet host(3);
  trainer::TransformerBlock block(
      host_device, host, "block0",
      {.attention = attention, .deviation = 0.3f, .residual_deviation = 0.2f});
  host.own_gradients();
  const auto x = random_values(rows * attention.width, 1),
             dy = random_values(rows * attention.width, 2);
  const auto y = block.forward(x, {});
  const auto dx = block.backward(dy);

  const auto parameters = on_device(host);
  BlockScratch scratch(*context_, attention);
  TransformerBlock dev_block(*context_, *parameters, scratch, "block0", attention);
  const DeviceMemory dev_x = upload(x), dev_gradient = upload(dy);
  const void* const dev_y = dev_block.forward(dev_x.data());
  expect_close(download<float>(dev_y, y.size()), y, kBound, "y");
  dev_block.backward(dev_gradient.data());
  expect_close(download<float>(dev_gradient.data(), dx.size()), dx, kBound, "dx");
  expect_gradients(*parameters, host);
}

}  // namespace
}  // namespace kolo::trainer::cuda
