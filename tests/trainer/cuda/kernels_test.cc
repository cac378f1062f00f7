// Compares each kernel with the host trainer's. Bounds: two roundings of the dtype, because both
// sides round nearly equal numbers; for a float32 sum of n terms, n roundings of 2^-24 on each
// side.

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/trainer/cuda/cuda_test.h"
#include "tests/trainer/cuda/references.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/elementwise.h"
#include "trainer/cuda/kernels/embedding.h"
#include "trainer/cuda/kernels/layer_norm.h"
#include "trainer/cuda/kernels/layouts.h"
#include "trainer/cuda/kernels/softmax.h"

namespace kolo::trainer::cuda {
namespace {

class KernelTest : public CudaTest, public testing::WithParamInterface<DType> {
 protected:
  DType dtype() const { return GetParam(); }

  float bound(std::size_t terms) const {
    return 2.0f * unit_roundoff(dtype()) + static_cast<float>(terms) * 0x1.0p-23f;
  }

  /// Expects that `add` adds to `sums` what they hold, up to the order of their terms.
  void expect_added(const float* sums, std::size_t count, const std::function<void()>& add) {
    auto twice = download<float>(sums, count);
    for (float& sum : twice) sum += sum;
    add();
    expect_close(download<float>(sums, count), twice, 0x1.0p-18f, "added");
  }

  std::vector<float> activations(const DeviceMemory& memory, std::size_t count) {
    return decode(dtype(), download<std::byte>(memory.data(), count * size_of(dtype())));
  }
};

TEST_P(KernelTest, CastAndCopiesAreExact) {
  const auto values = random_values(1003, 1);
  const DeviceMemory from = upload(values), into = room(1003 * size_of(dtype()));
  cast(native(), floats(from), values.size(), dtype(), into.data());
  EXPECT_EQ(activations(into, values.size()), decode(dtype(), encode(dtype(), values)));

  for (const std::size_t head_width : {3u, 8u}) {
    const HeadShape shape{
        .parts = 3, .sequences = 2, .length = 5, .heads = 2, .head_width = head_width};
    const auto joined = encode(dtype(), random_values(shape.count(), 2));
    std::vector<std::byte> expected(joined.size());
    reference::split_heads(dtype(), shape, joined.data(), expected.data());
    const DeviceMemory a = upload(joined), b = room(joined.size()), c = room(joined.size());
    split_heads(native(), dtype(), shape, a.data(), b.data());
    join_heads(native(), dtype(), shape, b.data(), c.data());
    EXPECT_EQ(download<std::byte>(b.data(), joined.size()), expected);
    EXPECT_EQ(download<std::byte>(c.data(), joined.size()), joined);
  }

  const FilterShape filter{.outputs = 8, .inputs = 3, .padded_inputs = 8, .kernel = 5};
  const auto weights = random_values(filter.parameter_count(), 3);
  std::vector<std::byte> packed(filter.packed_count() * size_of(dtype()));
  reference::pack_filter(filter, weights.data(), dtype(), packed.data());
  const DeviceMemory parameter = upload(weights), device_packed = room(packed.size());
  pack_filter(native(), filter, floats(parameter), dtype(), device_packed.data());
  unpack_filter(native(), filter, dtype(), device_packed.data(), Into::kOverwrite,
                floats(parameter));
  EXPECT_EQ(download<std::byte>(device_packed.data(), packed.size()), packed);
  auto unpacked = decode(dtype(), encode(dtype(), weights));
  EXPECT_EQ(download<float>(parameter.data(), weights.size()), unpacked);
  unpack_filter(native(), filter, dtype(), device_packed.data(), Into::kAdd, floats(parameter));
  for (float& weight : unpacked) weight += weight;
  EXPECT_EQ(download<float>(parameter.data(), weights.size()), unpacked);
}

TEST_P(KernelTest, PixelsAreExact) {
  const std::vector<std::uint8_t> bytes{0, 255, 7, 19, 200, 44};
  const auto table = random_values(256, 1);
  for (const std::size_t image_channels : {1u, 3u}) {
    for (const std::size_t channels : {image_channels, std::size_t{8}}) {
      const std::size_t count = bytes.size() / image_channels;
      std::vector<std::byte> expected(count * channels * size_of(dtype()));
      PixelCast pixels{.bytes = bytes.data(),
                       .table = table.data(),
                       .count = count,
                       .image_channels = image_channels,
                       .channels = channels,
                       .dtype = dtype(),
                       .into = expected.data()};
      reference::scale_pixels(pixels);
      const DeviceMemory device_bytes = upload(bytes), device_table = upload(table),
                         into = room(expected.size());
      pixels.bytes = reinterpret_cast<const std::uint8_t*>(device_bytes.data());
      pixels.table = floats(device_table);
      pixels.into = into.data();
      scale_pixels(native(), pixels);
      EXPECT_EQ(download<std::byte>(into.data(), expected.size()), expected);
    }
  }
}

TEST_P(KernelTest, ColumnSums) {
  for (const std::size_t width : {10u, 264u}) {
    constexpr std::size_t kRows = 701;
    const auto matrix = encode(dtype(), random_values(kRows * width, 1));
    std::vector<float> expected(width);
    const DeviceMemory device_matrix = upload(matrix), sums = room(width * sizeof(float)),
                       partials = room(column_sum_parts(kRows) * width * sizeof(float));
    ColumnSums step{.matrix = matrix.data(),
                    .dtype = dtype(),
                    .rows = kRows,
                    .width = width,
                    .partials = nullptr,
                    .into = expected.data()};
    reference::sum_columns(step);
    step.matrix = device_matrix.data();
    step.partials = floats(partials);
    step.into = floats(sums);
    sum_columns(native(), step);
    // Terms are at most 1, so partial sums are at most kRows.
    expect_close(download<float>(sums.data(), width), expected, kRows * 0x1.0p-23f * kRows, "sums");
    expect_added(floats(sums), width, [&] {
      step.mode = Into::kAdd;
      sum_columns(native(), step);
    });
  }
}

TEST_P(KernelTest, LayerNormForwardAndBackward) {
  for (const std::size_t width : {13u, 40u, 300u, 768u}) {
    constexpr std::size_t kRows = 37;
    const std::size_t count = kRows * width;
    const auto x = encode(dtype(), random_values(count, 1)),
               dy = encode(dtype(), random_values(count, 2)),
               residual = encode(dtype(), random_values(count, 3));
    const auto gain = random_values(width, 4), bias = random_values(width, 5);
    std::vector<std::byte> y(x.size()), dx(x.size());
    std::vector<float> mean(kRows), rstd(kRows), dgain(width), dbias(width);
    LayerNormForward forward{.dtype = dtype(),
                             .rows = kRows,
                             .width = width,
                             .x = x.data(),
                             .gain = gain.data(),
                             .bias = bias.data(),
                             .y = y.data(),
                             .mean = mean.data(),
                             .rstd = rstd.data()};
    LayerNormBackward backward{.dtype = dtype(),
                               .rows = kRows,
                               .width = width,
                               .dy = dy.data(),
                               .x = x.data(),
                               .gain = gain.data(),
                               .mean = mean.data(),
                               .rstd = rstd.data(),
                               .residual = residual.data(),
                               .dx = dx.data(),
                               .partials = nullptr,
                               .dgain = dgain.data(),
                               .dbias = dbias.data()};
    reference::layer_norm(forward);
    reference::layer_norm_backward(backward);

    const std::size_t row = width * sizeof(float);
    const DeviceMemory dev_x = upload(x), dev_dy = upload(dy), dev_residual = upload(residual),
                       dev_gain = upload(gain), dev_bias = upload(bias), dev_y = room(y.size()),
                       dev_mean = room(kRows * 4), dev_rstd = room(kRows * 4),
                       dev_dgain = room(row), dev_dbias = room(row),
                       partials = room(plan_layer_norm(kRows, width).partials * sizeof(float));
    forward.x = backward.x = dev_x.data();
    forward.gain = backward.gain = floats(dev_gain);
    forward.bias = floats(dev_bias);
    forward.y = dev_y.data();
    forward.mean = floats(dev_mean);
    forward.rstd = floats(dev_rstd);
    backward.mean = forward.mean;
    backward.rstd = forward.rstd;
    backward.dy = dev_dy.data();
    backward.residual = backward.dx = dev_residual.data();  // in place, as in blocks
    backward.partials = floats(partials);
    backward.dgain = floats(dev_dgain);
    backward.dbias = floats(dev_dbias);
    layer_norm(native(), forward);
    layer_norm_backward(native(), backward);
    expect_close(activations(dev_y, count), decode(dtype(), y), bound(4 * width), "y");
    expect_close(activations(dev_residual, count), decode(dtype(), dx), bound(8 * width), "dx");
    expect_close(download<float>(dev_dgain.data(), width), dgain, bound(8 * width), "dgain");
    expect_close(download<float>(dev_dbias.data(), width), dbias, bound(8 * width), "dbias");
    backward.mode = Into::kAdd;
    backward.residual = nullptr;
    backward.dx = dev_y.data();
    const auto again = [&] { layer_norm_backward(native(), backward); };
    expect_added(floats(dev_dgain), width, [&] { expect_added(floats(dev_dbias), width, again); });
  }
}

TEST_P(KernelTest, CausalSoftmaxForwardAndBackward) {
  for (const std::size_t length : {1u, 7u, 72u}) {
    const std::size_t count = 3 * length * length;
    auto weights = encode(dtype(), random_values(count, 1));
    auto gradient = encode(dtype(), random_values(count, 2));
    const DeviceMemory dev_weights = upload(weights), dev_gradient = upload(gradient);
    const CausalSoftmax forward{
        .dtype = dtype(), .matrices = 3, .length = length, .scores = weights.data()};
    reference::causal_softmax(forward);
    causal_softmax(
        native(),
        {.dtype = dtype(), .matrices = 3, .length = length, .scores = dev_weights.data()});
    expect_close(activations(dev_weights, count), decode(dtype(), weights), bound(4 * length),
                 "weights");
    // Both sides use the same weights, so that only the backward pass differs.
    const DeviceMemory same_weights = upload(weights);
    reference::causal_softmax_backward({.dtype = dtype(),
                                        .matrices = 3,
                                        .length = length,
                                        .weights = weights.data(),
                                        .gradient = gradient.data()});
    causal_softmax_backward(native(), {.dtype = dtype(),
                                       .matrices = 3,
                                       .length = length,
                                       .weights = same_weights.data(),
                                       .gradient = dev_gradient.data()});
    expect_close(activations(dev_gradient, count), decode(dtype(), gradient), bound(4 * length),
                 "gradient");
  }
}

TEST_P(KernelTest, BiasAndActivation) {
  for (const std::size_t width : {10u, 24u}) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kGelu}) {
      const std::size_t count = 9 * width;
      const auto x = encode(dtype(), random_values(count, 1));
      const auto dy = encode(dtype(), random_values(count, 2));
      const auto bias = random_values(width, 3);
      std::vector<std::byte> before(x.size()), y(x.size()), dx(x.size());
      const DeviceMemory dev_x = upload(x), dev_bias = upload(bias), dev_before = room(x.size()),
                         dev_y = room(x.size()), dev_dy = upload(dy), dev_dx = room(x.size());
      BiasActivation step{.activation = activation,
                          .dtype = dtype(),
                          .rows = 9,
                          .width = width,
                          .x = x.data(),
                          .bias = bias.data(),
                          .before = before.data(),
                          .y = y.data()};
      reference::bias_activation(step);
      step.x = dev_x.data();
      step.bias = floats(dev_bias);
      step.before = dev_before.data();
      step.y = dev_y.data();
      bias_activation(native(), step);
      EXPECT_EQ(download<std::byte>(dev_before.data(), before.size()), before);
      expect_close(activations(dev_y, count), decode(dtype(), y), bound(16), "y");
      reference::activation_backward(activation, dtype(), before.data(), count, dy.data(),
                                     dx.data());
      activation_backward(native(), activation, dtype(), dev_before.data(), count, dev_dy.data(),
                          dev_dx.data());
      expect_close(activations(dev_dx, count), decode(dtype(), dx), bound(16), "dx");
    }
  }
}

/// The rows of an embedding, and the shape of its table.
struct Tokens {
  const char* what;
  std::size_t vocabulary, width;
  std::vector<std::int32_t> rows;
};

// Slices hold rows of one token, of many, and of tokens that begin or end within.
std::vector<Tokens> tokens_of_rows(std::size_t rows) {
  Random random(1);
  std::vector<std::int32_t> few(rows), many(rows), same(rows, 3), each(rows);
  for (auto& token : few) token = static_cast<std::int32_t>(random.below(7) * 40);
  for (auto& token : many) {
    token = random.below(3) == 0 ? 50'000 : static_cast<std::int32_t>(random.below(50'257));
  }
  std::iota(each.begin(), each.end(), 0);
  return {{"bytes", 256, 136, few},
          {"byte pairs", 50'257, 5, many},
          {"one token", 5, 136, same},
          {"each token once", rows, 5, each}};
}

TEST_P(KernelTest, EmbeddingForwardAndBackward) {
  constexpr std::size_t kLength = 150, kRows = 3 * kLength;  // seven slices and a part of one
  for (const Tokens& tokens : tokens_of_rows(kRows)) {
    SCOPED_TRACE(tokens.what);
    const std::size_t width = tokens.width;
    std::vector<std::uint32_t> ends(tokens.vocabulary);
    std::vector<std::int32_t> order(kRows);
    order_rows(tokens.rows, ends, order);
    const auto token = random_values(tokens.vocabulary * width, 2);
    const auto position = random_values(kLength * width, 3);
    const auto dy = encode(dtype(), random_values(kRows * width, 4));
    auto dtoken = random_values(tokens.vocabulary * width, 5);
    std::vector<float> dposition(position.size());
    std::vector<std::byte> y(dy.size());
    const DeviceMemory dev_tokens = upload(tokens.rows), dev_order = upload(order),
                       dev_token = upload(token), dev_position = upload(position),
                       dev_dy = upload(dy), dev_y = room(y.size()), dev_dtoken = upload(dtoken),
                       dev_dposition = upload(dposition),
                       partials = room(token_slices(kRows) * 2 * width * sizeof(float));
    EmbeddingForward forward{.dtype = dtype(),
                             .rows = kRows,
                             .length = kLength,
                             .width = width,
                             .tokens = tokens.rows.data(),
                             .token = token.data(),
                             .position = position.data(),
                             .y = y.data()};
    EmbeddingBackward backward{.dtype = dtype(),
                               .rows = kRows,
                               .length = kLength,
                               .width = width,
                               .tokens = tokens.rows.data(),
                               .order = order.data(),
                               .dy = dy.data(),
                               .partials = nullptr,
                               .dtoken = dtoken.data(),
                               .dposition = dposition.data()};
    reference::embed(forward);
    reference::embed_backward(backward, tokens.vocabulary);
    forward.tokens = backward.tokens = reinterpret_cast<const std::int32_t*>(dev_tokens.data());
    backward.order = reinterpret_cast<const std::int32_t*>(dev_order.data());
    forward.token = floats(dev_token);
    forward.position = floats(dev_position);
    forward.y = dev_y.data();
    backward.dy = dev_dy.data();
    backward.partials = floats(partials);
    backward.dtoken = floats(dev_dtoken);
    backward.dposition = floats(dev_dposition);
    embed(native(), forward);
    embed_backward(native(), backward);
    EXPECT_EQ(download<std::byte>(dev_y.data(), y.size()), y);
    expect_close(download<float>(dev_dtoken.data(), dtoken.size()), dtoken,
                 kRows * 0x1.0p-24f * kRows, "dtoken");
    expect_close(download<float>(dev_dposition.data(), dposition.size()), dposition, 9 * 0x1.0p-24f,
                 "dposition");
    expect_added(floats(dev_dposition), dposition.size(), [&] {
      backward.position_mode = Into::kAdd;
      embed_backward(native(), backward);
    });
  }
}

/// Rows, classes and stride of logits.
struct LogitsShape {
  std::size_t rows, classes, stride;
};

class CrossEntropyTest : public KernelTest {
 protected:
  void expect_reference(const LogitsShape& shape, std::vector<float> logits) {
    std::vector<std::int32_t> targets(shape.rows - 4);
    Random random(2);
    for (auto& target : targets) target = static_cast<std::int32_t>(random.below(shape.classes));
    targets[2] = std::max(targets[2], 1);
    logits[shape.stride + static_cast<std::size_t>(targets[1])] = 9.0f;      // correct
    logits[2 * shape.stride + static_cast<std::size_t>(targets[2])] = 9.0f;  // beaten by an equal
    logits[2 * shape.stride] = 9.0f;
    std::vector<std::byte> gradient = encode(dtype(), std::vector<float>(logits.size(), 7.0f));
    const std::vector<BatchHeader> header{{.row_weight = 0.5f,
                                           .loss_scale = 2.0f,
                                           .targets = static_cast<std::uint32_t>(targets.size())}};
    std::vector<LossTotals> totals(1);
    const DeviceMemory dev_logits = upload(logits), dev_targets = upload(targets),
                       dev_header = upload(header), dev_totals = upload(totals),
                       dev_gradient = upload(gradient),
                       dev_results = room(2 * shape.rows * sizeof(float));
    CrossEntropy step{.dtype = dtype(),
                      .rows = shape.rows,
                      .classes = shape.classes,
                      .stride = shape.stride,
                      .logits = logits.data(),
                      .targets = targets.data(),
                      .header = header.data(),
                      .gradient = gradient.data(),
                      .row_results = nullptr,
                      .totals = totals.data()};
    reference::cross_entropy(step);
    step.logits = floats(dev_logits);
    step.targets = reinterpret_cast<const std::int32_t*>(dev_targets.data());
    step.header = reinterpret_cast<const BatchHeader*>(dev_header.data());
    step.gradient = dev_gradient.data();
    step.row_results = floats(dev_results);
    step.totals = reinterpret_cast<LossTotals*>(dev_totals.data());
    cross_entropy(native(), step);
    expect_close(activations(dev_gradient, logits.size()), decode(dtype(), gradient),
                 bound(2 * shape.classes), "gradient, and 7 between rows");
    const LossTotals actual = download<LossTotals>(dev_totals.data(), 1).front();
    EXPECT_GE(actual.correct, 1.0);
    EXPECT_EQ(actual.correct, totals.front().correct);
    EXPECT_NEAR(actual.loss, totals.front().loss,
                totals.front().loss * static_cast<double>(shape.classes) * 0x1.0p-23);
  }
};

TEST_P(CrossEntropyTest, RowsOfAnyNumberOfClasses) {
  for (const LogitsShape shape : {LogitsShape{301, 10, 10}, LogitsShape{301, 256, 256},
                                  LogitsShape{9, 1025, 1032}, LogitsShape{9, 50'257, 50'264}}) {
    SCOPED_TRACE(shape.classes);
    expect_reference(shape, random_values(shape.rows * shape.stride, 1));
  }
}

// The largest logit comes last, or logits differ so much that no other counts.
TEST_P(CrossEntropyTest, LogitsOfAnySize) {
  constexpr LogitsShape kShape{9, 3000, 3000};
  std::vector<float> logits(kShape.rows * kShape.stride);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto column = static_cast<float>(i % kShape.stride);
    logits[i] = i < 3 * kShape.stride ? column / 400.0f - 5.0f : 1e30f * (column - 1500.0f);
  }
  expect_reference(kShape, logits);
}

INSTANTIATE_TEST_SUITE_P(Types, CrossEntropyTest, testing::ValuesIn(kActivationTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });

INSTANTIATE_TEST_SUITE_P(Types, KernelTest, testing::ValuesIn(kActivationTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace kolo::trainer::cuda
