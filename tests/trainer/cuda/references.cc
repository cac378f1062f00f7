#include "tests/trainer/cuda/references.h"

#include <algorithm>
#include <cstring>

#include "comm/base/half.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer::cuda {
namespace {

struct Activated {
  std::vector<float> y, slope;
};

Activated activate_all(Activation activation, const std::vector<float>& x) {
  Activated result{.y = x, .slope = std::vector<float>(x.size(), 1.0f)};
  if (activation == Activation::kRelu) relu(x, result.y, result.slope);
  if (activation == Activation::kGelu) gelu(x, result.y, result.slope);
  return result;
}

std::vector<float> gradient_of(const UpdateArrays& a, const UpdateChunk& chunk) {
  return load_values(a.gradient_dtype, chunk.gradient, chunk.count);
}

// Calls element(chunk, gradient, index in values, index in moments) for every element and writes
// its copy.
template <typename Element>
void for_each_element(const UpdateArrays& a, const Element& element) {
  for (std::size_t c = 0; c < a.chunk_count; ++c) {
    const UpdateChunk& chunk = a.chunks[c];
    const std::vector<float> gradient = gradient_of(a, chunk);
    for (std::size_t i = 0; i < chunk.count; ++i) {
      element(chunk, gradient[i], chunk.offset + i, chunk.state + i);
    }
    if (a.copy == nullptr) continue;
    store_values(a.copy_dtype, {a.values + chunk.offset, chunk.count},
                 static_cast<std::byte*>(a.copy) + chunk.offset * size_of(a.copy_dtype));
  }
}

}  // namespace

std::vector<std::byte> encode(DType dtype, std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto put = [&](auto element) {
      std::memcpy(bytes.data() + i * sizeof element, &element, sizeof element);
    };
    if (dtype == DType::kFloat32) put(values[i]);
    if (dtype == DType::kBFloat16) put(to_bfloat16(values[i]));
    if (dtype == DType::kFloat16) put(to_float16(values[i]));
  }
  return bytes;
}

std::vector<float> decode(DType dtype, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto get = [&](auto element) {
      std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
      return element;
    };
    if (dtype == DType::kFloat32) values[i] = get(float{});
    if (dtype == DType::kBFloat16) values[i] = to_float(get(BFloat16{}));
    if (dtype == DType::kFloat16) values[i] = to_float(get(Float16{}));
  }
  return values;
}

std::vector<float> load_values(DType dtype, const void* data, std::size_t count) {
  return decode(dtype, {static_cast<const std::byte*>(data), count * size_of(dtype)});
}

void store_values(DType dtype, std::span<const float> values, void* into) {
  const std::vector<std::byte> bytes = encode(dtype, values);
  std::memcpy(into, bytes.data(), bytes.size());
}

namespace reference {

void bias_activation(const BiasActivation& s) {
  std::vector<float> v = load_values(s.dtype, s.x, s.rows * s.width);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] += s.bias[i % s.width];
  store_values(s.dtype, v, s.before);
  store_values(s.dtype, activate_all(s.activation, v).y, s.y);
}

void activation_backward(Activation activation, DType dtype, const void* before, std::size_t count,
                         const void* dy, void* dx) {
  std::vector<float> g = load_values(dtype, dy, count);
  multiply_elements(g, activate_all(activation, load_values(dtype, before, count)).slope, g);
  store_values(dtype, g, dx);
}

void causal_softmax(const CausalSoftmax& s) {
  const std::size_t size = s.length * s.length;
  std::vector<float> scores = load_values(s.dtype, s.scores, s.matrices * size);
  for (std::size_t at = 0; at < scores.size(); at += size) {
    softmax(std::span(scores).subspan(at, size), s.length, 1.0f, Sees::kEarlier);
  }
  store_values(s.dtype, scores, s.scores);
}

void causal_softmax_backward(const CausalSoftmaxBackward& s) {
  const std::size_t size = s.length * s.length;
  const std::vector<float> weights = load_values(s.dtype, s.weights, s.matrices * size);
  std::vector<float> gradient = load_values(s.dtype, s.gradient, s.matrices * size);
  for (std::size_t at = 0; at < gradient.size(); at += size) {
    softmax_backward(std::span(weights).subspan(at, size), std::span(gradient).subspan(at, size),
                     s.length, 1.0f, Sees::kEarlier);
  }
  store_values(s.dtype, gradient, s.gradient);
}

void sum_columns(const ColumnSums& s) {
  sum_rows(load_values(s.dtype, s.matrix, s.rows * s.width), {s.into, s.width});
}

void cross_entropy(const CrossEntropy& s) {
  const std::vector<float> old = load_values(s.dtype, s.gradient, s.rows * s.stride);
  std::vector<float> gradient(s.logits, s.logits + s.rows * s.stride);
  const float weight = s.header->row_weight * s.header->loss_scale;
  for (std::size_t r = 0; r < s.rows; ++r) {
    const std::span<float> row = std::span(gradient).subspan(r * s.stride, s.classes);
    std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(r * s.stride + s.classes),
                s.stride - s.classes, row.end());
    if (r >= s.header->targets) {
      std::ranges::fill(row, 0.0f);
      continue;
    }
    s.totals->correct += std::ranges::max_element(row) - row.begin() == s.targets[r] ? 1.0 : 0.0;
    s.totals->loss += static_cast<double>(
        softmax_cross_entropy(row, static_cast<std::size_t>(s.targets[r]), weight));
  }
  store_values(s.dtype, gradient, s.gradient);
}

void embed(const EmbeddingForward& s) {
  std::vector<float> y(s.rows * s.width);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t row = i / s.width, column = i % s.width;
    y[i] = s.token[static_cast<std::size_t>(s.tokens[row]) * s.width + column] +
           s.position[row % s.length * s.width + column];
  }
  store_values(s.dtype, y, s.y);
}

void embed_backward(const EmbeddingBackward& s, std::size_t vocabulary) {
  const std::vector<float> dy = load_values(s.dtype, s.dy, s.rows * s.width);
  std::vector<double> token(s.dtoken, s.dtoken + vocabulary * s.width),
      position(s.length * s.width);
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const std::size_t row = i / s.width, column = i % s.width;
    token[static_cast<std::size_t>(s.tokens[row]) * s.width + column] += static_cast<double>(dy[i]);
    position[row % s.length * s.width + column] += static_cast<double>(dy[i]);
  }
  std::ranges::transform(token, s.dtoken, [](double sum) { return static_cast<float>(sum); });
  std::ranges::transform(position, s.dposition, [](double sum) { return static_cast<float>(sum); });
}

void pack_filter(const FilterShape& shape, const float* parameter, DType dtype, void* packed) {
  std::vector<float> values(shape.packed_count());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (shape.input_of(i) < shape.inputs) values[i] = parameter[shape.parameter_index(i)];
  }
  store_values(dtype, values, packed);
}

void split_heads(DType dtype, const HeadShape& shape, const void* joined, void* split) {
  const std::vector<float> from = load_values(dtype, joined, shape.count());
  std::vector<float> values(shape.count());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = from[shape.joined_index(i)];
  store_values(dtype, values, split);
}

void layer_norm(const LayerNormForward& s) {
  const std::vector<float> x = load_values(s.dtype, s.x, s.rows * s.width);
  std::vector<float> y(x.size());
  trainer::layer_norm(x, {s.gain, s.width}, {s.bias, s.width}, y, {s.mean, s.rows},
                      {s.rstd, s.rows});
  store_values(s.dtype, y, s.y);
}

void layer_norm_backward(const LayerNormBackward& s) {
  const std::size_t count = s.rows * s.width;
  std::vector<float> dx(count);
  trainer::layer_norm_backward(load_values(s.dtype, s.dy, count), load_values(s.dtype, s.x, count),
                               {s.gain, s.width}, {s.mean, s.rows}, {s.rstd, s.rows}, dx,
                               {s.dgain, s.width}, {s.dbias, s.width}, Into::kOverwrite);
  add(dx, load_values(s.dtype, s.residual, count), dx);
  store_values(s.dtype, dx, s.dx);
}

void scale_pixels(const PixelCast& p) {
  std::vector<float> values(p.count * p.channels);
  for (std::size_t i = 0; i < p.count * p.image_channels; ++i) {
    const std::size_t pixel = i / p.image_channels, channel = i % p.image_channels;
    values[pixel * p.channels + channel] = p.table[p.bytes[i]];
  }
  store_values(p.dtype, values, p.into);
}

void decide_update(const UpdateArrays& a, const DecisionRule& rule, UpdateDecision* decision) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.chunk_count; ++c) {
    for (const float g : gradient_of(a, a.chunks[c])) sum += double{g} * double{g};
  }
  *decision = decide(*decision, rule, sum);
}

void update_adamw(const UpdateArrays& a, const AdamWRates& rates, const UpdateDecision* decision) {
  if (decision->is_skipped != 0) return;
  for_each_element(a,
                   [&](const UpdateChunk& chunk, float gradient, std::size_t i, std::size_t state) {
                     adamw_element(rates_of(rates, chunk), *decision, gradient, a.first[state],
                                   a.second[state], a.values[i]);
                   });
}

void update_sgd(const UpdateArrays& a, const SgdRates& rates, const UpdateDecision* decision) {
  if (decision->is_skipped != 0) return;
  for_each_element(
      a, [&](const UpdateChunk& chunk, float gradient, std::size_t i, std::size_t state) {
        sgd_element(rates_of(rates, chunk), *decision, gradient, a.first[state], a.values[i]);
      });
}

}  // namespace reference
}  // namespace kolo::trainer::cuda
