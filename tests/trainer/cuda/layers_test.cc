// Compares device layers with host layers, with equal parameters and inputs, in float32. Sums of n
// terms of size 1 differ by at most n² roundings of 2^-24, and by less than 1e-4 here.
//
// The same tests run on the processor, with emulated kernels and stand-ins of cuBLAS and cuDNN.

#include <algorithm>
#include <functional>
#include <variant>

#include "tests/trainer/cuda/cuda_test.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/compute/device.h"
#include "trainer/cuda/layers/attention.h"
#include "trainer/cuda/layers/images.h"
#include "trainer/cuda/layers/linear.h"
#include "trainer/cuda/layers/transformer.h"
#include "trainer/layers/attention.h"
#include "trainer/layers/elementwise.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/transformer_blocks.h"
#include "trainer/models/image_models.h"

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

  void expect_gradients(const DeviceParameters& parameters, const ParameterSet& host,
                        float bound = kBound) {
    for (std::size_t i = 0; i < host.size(); ++i) {
      expect_close(download<float>(parameters[i].gradient, parameters[i].size), host[i].gradient(),
                   bound, host[i].name());
    }
  }

  void expect_same_network(const ImageNetwork& network, std::size_t channels, float bound);

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

// The products round scores, which are below 4 here, to 16 bits, so a weight moves by at most 4
// roundings, and its gradient by as much again. Both ways round weights, gradients of scores and
// results, at most 3 roundings each. Together that is less than 16.
TEST_F(LayerTest, FusedAttentionIsThatOfMatrixProducts) {
  const SelfAttention::Options shapes[] = {
      {.sequences = 2, .length = 33, .width = 48, .heads = 3},
      {.sequences = 1, .length = 65, .width = 64, .heads = 1},
  };
  for (const DType dtype : kActivationTypes) {
    for (const SelfAttention::Options& shape : shapes) {
      SCOPED_TRACE(testing::Message() << to_string(dtype) << ", length " << shape.length);
      Context context(*device_, *stream_, dtype);
      AttentionScratch products(context, shape, AttentionMode::kProducts);
      std::optional<AttentionScratch> fused;
      try {
        fused.emplace(context, shape, AttentionMode::kFused);
      } catch (const KoloError& error) {
        ASSERT_EQ(dtype, DType::kFloat32) << error.what();  // which cuDNN need not offer
        continue;
      }
      Attention expected(context, products, shape), actual(context, *fused, shape);
      const std::size_t rows = shape.sequences * shape.length, count = rows * shape.width;
      const auto on_device = [&](std::size_t size, std::uint64_t seed) {
        return upload(encode(dtype, random_values(size, seed)));
      };
      const DeviceMemory packed = on_device(3 * count, 1), dy = on_device(count, 2),
                         y = context.activations(count), expected_y = context.activations(count);
      const float bound = dtype == DType::kFloat32 ? kBound : 16 * unit_roundoff(dtype);
      const auto expect_equal = [&](const void* got, const void* wanted, std::size_t size,
                                    const std::string& what) {
        const std::size_t bytes = size * size_of(dtype);
        expect_close(decode(dtype, download<std::byte>(got, bytes)),
                     decode(dtype, download<std::byte>(wanted, bytes)), bound, what);
      };
      const auto pass = [&](Attention& attention, const DeviceMemory& result) {
        const std::size_t bytes = 3 * count * size_of(dtype);
        stream_->copy({attention.inputs(), bytes, DType::kUInt8, MemoryKind::kDevice},
                      {packed.data(), bytes, DType::kUInt8, MemoryKind::kDevice});
        finish();
        attention.forward(result.data());
        return attention.backward(result.data(), dy.data());
      };
      const void* const expected_gradient = pass(expected, expected_y);
      const void* const gradient = pass(actual, y);
      expect_equal(y.data(), expected_y.data(), count, "y");
      expect_equal(gradient, expected_gradient, 3 * count, "gradient of query, key and value");
    }
  }
}

TEST_F(LayerTest, AttentionIsFusedIn16BitsUnlessItIsSaidOtherwise) {
  const SelfAttention::Options shape{.sequences = 1, .length = 8, .width = 32, .heads = 2};
  for (const DType dtype : kActivationTypes) {
    Context context(*device_, *stream_, dtype);
    EXPECT_EQ(AttentionScratch(context, shape, AttentionMode::kAuto).fused.has_value(),
              is_16bit_float(dtype) && cudnnGetVersion() >= 91600)
        << to_string(dtype);
    EXPECT_FALSE(AttentionScratch(context, shape, AttentionMode::kProducts).fused);
  }
}

constexpr std::size_t kImages = 4, kCounted = 3;  // the last image is padding
constexpr std::size_t kHeight = 17, kWidth = 18;

ImageNetwork images(std::size_t channels) {
  return ImageNetwork(
      {.images = kImages, .height = kHeight, .width = kWidth, .channels = channels});
}

ImageModelOptions model_images(std::size_t channels) {
  return {.images = kImages,
          .height = kHeight,
          .width = kWidth,
          .channels = channels,
          .classes = 10,
          .hidden = 24,
          .scaling = PixelScaling(127.5, 73.9),
          .seed = 3};
}

// Returns pixels with channels of zeros up to a multiple of kChannelMultiple, as a convolution
// takes them.
std::vector<float> pad_channels(const std::vector<float>& x, std::size_t channels) {
  const std::size_t to = round_up(channels, kChannelMultiple);
  std::vector<float> padded(x.size() / channels * to);
  for (std::size_t i = 0; i < x.size(); ++i) padded[i / channels * to + i % channels] = x[i];
  return padded;
}

// Two passes, whose gradients add up, then one over held-out images.
void LayerTest::expect_same_network(const ImageNetwork& network, std::size_t channels,
                                    float bound) {
  trainer::Device host_device;
  ParameterSet host(3);
  Sequential layers;
  append_layers(layers, host_device, host, network.layers());
  for (std::size_t i = 0; i < host.size(); ++i) {
    for (float& value : host[i].value()) value += 0.1f;
  }
  host.own_gradients();
  host.accumulate(2);
  std::vector<std::size_t> host_ready, ready;
  host.on_gradient_ready([&](std::size_t i) { host_ready.push_back(i); });

  const auto parameters = on_device(host);
  parameters->on_ready([&](std::size_t i) { ready.push_back(i); });
  ParameterSet host_buffers(std::nullopt);
  for (const Buffer& buffer : host.buffers()) {
    const auto from = buffer.value.span();
    std::ranges::copy(from,
                      host_buffers.add(buffer.name, buffer.value.shape(), {}).value().begin());
  }
  DeviceParameters buffers(host_buffers, *device_, *stream_, DType::kFloat32);
  if (buffers.size() > 0) buffers.upload();
  DeviceLayers dev_layers({*context_, *parameters, buffers}, network.layers(), true);
  const DeviceMemory header = upload(std::vector<BatchHeader>{{.targets = kCounted}});
  ImagePass pass{.header = reinterpret_cast<const BatchHeader*>(header.data()),
                 .is_training = true};

  const bool is_convolution =
      std::holds_alternative<Conv2d::Options>(network.layers().front().options);
  const std::size_t outputs = network.output().features();
  for (const std::uint64_t seed : {1u, 2u}) {
    const auto x = random_values(kImages * kHeight * kWidth * channels, seed);
    auto dy = random_values(kImages * outputs, seed + 10);
    std::fill(dy.begin() + kCounted * static_cast<std::ptrdiff_t>(outputs), dy.end(), 0.0f);
    const DeviceMemory dev_x = upload(is_convolution ? pad_channels(x, channels) : x),
                       dev_dy = upload(dy);
    const auto y = layers.forward(x, {.samples = kCounted});
    parameters->begin({.is_first = seed == 1, .is_last = seed == 2});
    expect_close(download<float>(dev_layers.forward(dev_x.data(), pass), y.size()), y, bound, "y");
    const auto dx = layers.backward(dy);
    const void* const dev_dx = dev_layers.backward(dev_dy.data());
    EXPECT_EQ(dev_dx == nullptr, dx.empty());
    if (!dx.empty()) expect_close(download<float>(dev_dx, dx.size()), dx, bound, "dx");
    finish();
    pass.is_training = false;
    const auto held_out = layers.forward(x, {.is_training = false});
    expect_close(download<float>(dev_layers.forward(dev_x.data(), pass), y.size()), held_out, bound,
                 "held out");
    pass.is_training = true;
  }
  expect_gradients(*parameters, host, bound);
  EXPECT_EQ(ready, host_ready);
  if (buffers.size() > 0) buffers.download();
  for (std::size_t i = 0; i < host_buffers.size(); ++i) {
    expect_close(std::as_const(host_buffers)[i].value(), host.buffers()[i].value.span(), bound,
                 host_buffers[i].name());
  }
}

TEST_F(LayerTest, ImageLayers) {
  using Shortcut = ImageNetwork::Shortcut;
  const std::function<void(ImageNetwork&)> cases[] = {
      [](ImageNetwork& n) { n.convolution("conv", {.channels = 16, .kernel = 5}); },
      [](ImageNetwork& n) {
        n.convolution("conv", {.channels = 8, .kernel = 3, .stride = 2, .padding = 1});
      },
      [](ImageNetwork& n) {
        n.normalized_convolution("conv", "norm", {.channels = 16, .kernel = 1, .stride = 2});
      },
      [](ImageNetwork& n) { n.max_pool(2, 2, 0); },
      [](ImageNetwork& n) { n.max_pool(3, 2, 1); },
      [](ImageNetwork& n) { n.average_pool(); },
      [](ImageNetwork& n) {
        n.residual_block("block", {.channels = 8, .stride = 1, .shortcut = Shortcut::kPadded});
      },
      [](ImageNetwork& n) {
        n.residual_block("block", {.channels = 16, .stride = 2, .shortcut = Shortcut::kPadded});
      },
      [](ImageNetwork& n) {
        n.residual_block("block", {.channels = 16, .stride = 2, .shortcut = Shortcut::kProjection});
      },
  };
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(i);
    ImageNetwork network = images(8);
    network.relu();  // so that the next layer computes the gradient of its input
    cases[i](network);
    expect_same_network(network, 8, kBound);
  }
}

// Bound: that of models_test.cc.
TEST_F(LayerTest, ImageNetworks) {
  const auto o = model_images(3);
  const Resnet::Stages padded{{8, 16}, 1, ImageNetwork::Shortcut::kPadded};
  const Resnet::Stages projections{{8, 16}, 1, ImageNetwork::Shortcut::kProjection};
  const ImageNetwork networks[] = {Mlp::network(o), Lenet::network(o), Convnet::network(o),
                                   Resnet::network(o, padded), Resnet::network(o, projections)};
  for (const ImageNetwork& network : networks) {
    SCOPED_TRACE(network.layers().front().name);
    expect_same_network(network, 3, 0.011f);
  }
}

}  // namespace
}  // namespace kolo::trainer::cuda
