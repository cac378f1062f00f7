#include "tests/trainer/cuda/references.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "comm/base/dtype.h"
#include "comm/base/half.h"
#include "tests/trainer/cuda/elements.h"

namespace kolo::trainer::cuda::reference {
namespace {

// Calls element(chunk, gradient, index in the arrays) for every element and writes its copy.
template <typename Element>
void for_each_element(const UpdateArrays& a, const Element& element) {
  for (std::size_t c = 0; c < a.chunk_count; ++c) {
    const UpdateChunk& chunk = a.chunks[c];
    for (std::size_t i = 0; i < chunk.count; ++i) {
      const std::size_t index = chunk.offset + i;
      element(chunk, chunk.gradient[i], index);
      if (a.copy == nullptr) continue;
      visit_element(a.copy_dtype, [&](auto zero) {
        using T = decltype(zero);
        as<T>(a.copy)[index] = round_to<T>(a.values[index]);
      });
    }
  }
}

}  // namespace

void bias_activation(const BiasActivation& step) {
  visit_element(step.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < step.rows * step.width; ++i) {
      const float bias = step.bias != nullptr ? step.bias[i % step.width] : 0.0f;
      const float v = widen(as<T>(step.x)[i]) + bias;
      if (step.before != nullptr) as<T>(step.before)[i] = round_to<T>(v);
      as<T>(step.y)[i] = round_to<T>(activate(step.activation, v));
    }
  });
}

void activation_backward(Activation activation, DType dtype, const void* before, std::size_t count,
                         void* gradient) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < count; ++i) {
      T& g = as<T>(gradient)[i];
      g = round_to<T>(widen(g) * slope(activation, widen(as<T>(before)[i])));
    }
  });
}

void cast(const float* from, std::size_t count, DType dtype, void* into) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < count; ++i) as<T>(into)[i] = round_to<T>(from[i]);
  });
}

void causal_softmax(const CausalSoftmax& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t r = 0; r < s.matrices * s.length; ++r) {
      T* row = as<T>(s.scores) + r * s.length;
      const std::size_t used = r % s.length + 1;
      float top = widen(row[0]);
      for (std::size_t c = 1; c < used; ++c) top = std::max(top, widen(row[c]));
      double sum = 0.0;
      const auto power = [&](std::size_t c) {
        return std::exp(static_cast<double>(widen(row[c])) - static_cast<double>(top));
      };
      for (std::size_t c = 0; c < used; ++c) sum += power(c);
      for (std::size_t c = 0; c < s.length; ++c) {
        row[c] = round_to<T>(c < used ? static_cast<float>(power(c) / sum) : 0.0f);
      }
    }
  });
}

void causal_softmax_backward(const CausalSoftmaxBackward& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t r = 0; r < s.matrices * s.length; ++r) {
      const T* w = as<T>(s.weights) + r * s.length;
      T* g = as<T>(s.gradient) + r * s.length;
      const std::size_t used = r % s.length + 1;
      double dot = 0.0;
      for (std::size_t c = 0; c < used; ++c) {
        dot += static_cast<double>(widen(w[c])) * static_cast<double>(widen(g[c]));
      }
      for (std::size_t c = 0; c < s.length; ++c) {
        const double value =
            c < used ? static_cast<double>(widen(w[c])) * (static_cast<double>(widen(g[c])) - dot)
                     : 0.0;
        g[c] = round_to<T>(static_cast<float>(value));
      }
    }
  });
}

void fold(const Fold& f) {
  for (std::size_t c = 0; c < f.width; ++c) {
    double sum = f.mode == FoldInto::kAdd ? static_cast<double>(f.into[c]) : 0.0;
    for (std::size_t p = 0; p < f.parts; ++p) {
      sum += static_cast<double>(f.partials[p * f.stride + c]);
    }
    f.into[c] = static_cast<float>(sum);
  }
}

void sum_columns(const ColumnSums& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t c = 0; c < s.width; ++c) {
      double sum = 0.0;
      for (std::size_t r = 0; r < s.rows; ++r) {
        sum += static_cast<double>(widen(as<T>(s.matrix)[r * s.width + c]));
      }
      s.into[c] = static_cast<float>(sum);
    }
  });
}

void cross_entropy(const CrossEntropy& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    T* gradient = as<T>(s.gradient);
    const double weight =
        static_cast<double>(s.header->row_weight) * static_cast<double>(s.header->loss_scale);
    for (std::size_t r = 0; r < s.rows; ++r) {
      const float* logits = s.logits + r * s.classes;
      const bool counts = r < s.header->targets;
      const float* best = std::max_element(logits, logits + s.classes);
      const auto power = [&](std::size_t c) {
        return std::exp(static_cast<double>(logits[c]) - static_cast<double>(*best));
      };
      double sum = 0.0;
      for (std::size_t c = 0; c < s.classes; ++c) sum += power(c);
      for (std::size_t c = 0; gradient != nullptr && c < s.classes; ++c) {
        const double hit = counts && c == s.targets[r] ? 1.0 : 0.0;
        const double value = counts ? weight * (power(c) / sum - hit) : 0.0;
        gradient[r * s.classes + c] = round_to<T>(static_cast<float>(value));
      }
      float* result = s.row_results + 2 * r;
      result[0] = result[1] = 0.0f;
      if (!counts) continue;
      const double shifted = static_cast<double>(logits[s.targets[r]]) - static_cast<double>(*best);
      result[0] = static_cast<float>(std::log(sum) - shifted);
      result[1] = best - logits == s.targets[r] ? 1.0f : 0.0f;
      s.totals->loss += static_cast<double>(result[0]);
      s.totals->correct += static_cast<double>(result[1]);
    }
  });
}

void embed(const EmbeddingForward& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < s.rows * s.width; ++i) {
      const std::size_t row = i / s.width;
      const std::size_t column = i % s.width;
      as<T>(s.y)[i] = round_to<T>(s.token[s.bytes[row] * s.width + column] +
                                  s.position[row % s.length * s.width + column]);
    }
  });
}

void embed_backward(const EmbeddingBackward& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    std::vector<double> token(kTokens * s.width), position(s.length * s.width);
    for (std::size_t i = 0; i < s.rows * s.width; ++i) {
      const std::size_t row = i / s.width;
      const std::size_t column = i % s.width;
      const auto dy = static_cast<double>(widen(as<T>(s.dy)[i]));
      token[s.bytes[row] * s.width + column] += dy;
      position[row % s.length * s.width + column] += dy;
    }
    for (std::size_t i = 0; i < token.size(); ++i) {
      s.dtoken[i] = static_cast<float>(static_cast<double>(s.dtoken[i]) + token[i]);
    }
    std::transform(position.begin(), position.end(), s.dposition,
                   [](double sum) { return static_cast<float>(sum); });
  });
}

void pack_filter(const FilterShape& shape, const float* parameter, DType dtype, void* packed) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < shape.packed_count(); ++i) {
      const bool is_padding = shape.input_of(i) >= shape.inputs;
      as<T>(packed)[i] = round_to<T>(is_padding ? 0.0f : parameter[shape.parameter_index(i)]);
    }
  });
}

void unpack_filter(const FilterShape& shape, DType dtype, const void* packed, float* parameter) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < shape.packed_count(); ++i) {
      if (shape.input_of(i) >= shape.inputs) continue;
      parameter[shape.parameter_index(i)] = widen(as<T>(packed)[i]);
    }
  });
}

void split_heads(DType dtype, const HeadShape& shape, const void* joined, void* split) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < shape.count(); ++i) {
      as<T>(split)[i] = as<T>(joined)[shape.joined_index(i)];
    }
  });
}

void join_heads(DType dtype, const HeadShape& shape, const void* split, void* joined) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < shape.count(); ++i) {
      as<T>(joined)[shape.joined_index(i)] = as<T>(split)[i];
    }
  });
}

void layer_norm(const LayerNormForward& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    const auto width = static_cast<double>(s.width);
    for (std::size_t r = 0; r < s.rows; ++r) {
      const T* x = as<T>(s.x) + r * s.width;
      double mean = 0.0;
      for (std::size_t c = 0; c < s.width; ++c) mean += static_cast<double>(widen(x[c])) / width;
      double variance = 0.0;
      for (std::size_t c = 0; c < s.width; ++c) {
        const double centred = static_cast<double>(widen(x[c])) - mean;
        variance += centred * centred / width;
      }
      const double rstd = 1.0 / std::sqrt(variance + 1e-5);
      for (std::size_t c = 0; c < s.width; ++c) {
        const double normal = (static_cast<double>(widen(x[c])) - mean) * rstd;
        const double y = normal * static_cast<double>(s.gain[c]) + static_cast<double>(s.bias[c]);
        as<T>(s.y)[r * s.width + c] = round_to<T>(static_cast<float>(y));
      }
      s.mean[r] = static_cast<float>(mean);
      s.rstd[r] = static_cast<float>(rstd);
    }
  });
}

// With n = (x - mean) rstd and g = dy gain:
//   dx = rstd (g - average(g) - n average(g n)),   dgain = sum(dy n),   dbias = sum(dy).
void layer_norm_backward(const LayerNormBackward& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    const auto width = static_cast<double>(s.width);
    std::vector<double> dgain(s.width), dbias(s.width), n(s.width), g(s.width);
    for (std::size_t r = 0; r < s.rows; ++r) {
      const std::size_t row = r * s.width;
      double average = 0.0;
      double along = 0.0;
      for (std::size_t c = 0; c < s.width; ++c) {
        const auto dy = static_cast<double>(widen(as<T>(s.dy)[row + c]));
        n[c] = (static_cast<double>(widen(as<T>(s.x)[row + c])) - static_cast<double>(s.mean[r])) *
               static_cast<double>(s.rstd[r]);
        g[c] = dy * static_cast<double>(s.gain[c]);
        average += g[c] / width;
        along += g[c] * n[c] / width;
        dgain[c] += dy * n[c];
        dbias[c] += dy;
      }
      for (std::size_t c = 0; c < s.width; ++c) {
        double dx = static_cast<double>(s.rstd[r]) * (g[c] - average - n[c] * along);
        if (s.residual != nullptr) dx += static_cast<double>(widen(as<T>(s.residual)[row + c]));
        as<T>(s.dx)[row + c] = round_to<T>(static_cast<float>(dx));
      }
    }
    for (std::size_t c = 0; c < s.width; ++c) {
      s.dgain[c] = static_cast<float>(dgain[c]);
      s.dbias[c] = static_cast<float>(dbias[c]);
    }
  });
}

void scale_pixels(const PixelCast& p) {
  visit_element(p.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < p.count * p.channels; ++i) {
      const bool is_padding = i % p.channels != 0;
      as<T>(p.into)[i] = round_to<T>(is_padding ? 0.0f : p.table[p.bytes[i / p.channels]]);
    }
  });
}

void decide_update(const UpdateArrays& a, const DecisionRule& rule, const std::uint32_t* non_finite,
                   UpdateDecision* decision) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.chunk_count; ++c) {
    for (std::size_t i = 0; i < a.chunks[c].count; ++i) {
      const auto g = static_cast<double>(a.chunks[c].gradient[i]);
      sum += g * g;
    }
  }
  *decision = decide(*decision, rule, sum, non_finite != nullptr && *non_finite != 0);
}

void update_adamw(const UpdateArrays& a, const AdamWRates& rates, const UpdateDecision* decision) {
  if (decision->is_skipped != 0) return;
  for_each_element(a, [&](const UpdateChunk& chunk, float gradient, std::size_t i) {
    adamw_element(rates, *decision, chunk.decays != 0 ? rates.weight_decay : 0.0f, gradient,
                  a.first[i], a.second[i], a.values[i]);
  });
}

void update_sgd(const UpdateArrays& a, const SgdRates& rates, const UpdateDecision* decision) {
  if (decision->is_skipped != 0) return;
  for_each_element(a, [&](const UpdateChunk& chunk, float gradient, std::size_t i) {
    sgd_element(rates, *decision, chunk.decays != 0 ? rates.weight_decay : 0.0f, gradient,
                a.first[i], a.values[i]);
  });
}

}  // namespace kolo::trainer::cuda::reference
