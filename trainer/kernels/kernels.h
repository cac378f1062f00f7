#pragma once

#include <cstddef>
#include <span>

#include "comm/base/half.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Computes out = a + b. Before: equal sizes; `out` may be `a` or `b`.
void add(std::span<const float> a, std::span<const float> b, std::span<float> out);

/// Computes out = a · b, element by element. Before: equal sizes; `out` may be `a` or `b`.
void multiply_elements(std::span<const float> a, std::span<const float> b, std::span<float> out);

/// Adds factor · values to `out`. Before: equal sizes.
void add_scaled(std::span<const float> values, float factor, std::span<float> out);

/// Multiplies each of `values` by `factor`.
void scale(std::span<float> values, float factor);

/// Copies `row` to each row of `matrix`, whose width is row.size().
void repeat_row(std::span<const float> row, std::span<float> matrix);

/// Computes the sum of each column: sums[j] = sum over rows i of matrix[i, j], in row order. With
/// Into::kAdd, the sum is added to sums[j].
/// Shape: matrix is [rows, sums.size()].
void sum_rows(std::span<const float> matrix, std::span<float> sums, Into into = Into::kOverwrite);

/// The sum of squares in a fixed order, in fp32 within blocks and in fp64 across blocks.
double sum_of_squares(std::span<const float> values);

/// Computes y = max(x, 0) and its derivative: slope = 1 for x > 0, else 0. Before: equal sizes.
void relu(std::span<const float> x, std::span<float> y, std::span<float> slope);

/// Computes y = x · Φ(x) in the tanh approximation, and its derivative `slope`. With the derivative
/// stored, the backward pass is one product. Before: equal sizes.
///
/// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
void gelu(std::span<const float> x, std::span<float> y, std::span<float> slope);

/// Computes y = tanh(x) and its derivative `slope`. Before: equal sizes.
void tanh(std::span<const float> x, std::span<float> y, std::span<float> slope);

/// Which positions a row of attention sees. The rows are the last ones of `length` positions.
enum class Sees {
  kEarlier,  ///< Row i of `rows`, at position length - rows + i, sees positions up to this one.
  kAll,
};

/// Computes attention weights in place: each row of `scores` becomes softmax(factor · scores) over
/// the positions that it sees, and 0 at other positions. Shape: scores is [rows, length].
void softmax(std::span<float> scores, std::size_t length, float factor, Sees sees);

/// Computes the backward pass of `softmax` in place. `gradient` is first the gradient g of the
/// weights w, then that of the scores: factor · w · (g - sum(g · w)) where a row sees a position, 0
/// elsewhere.
void softmax_backward(std::span<const float> weights, std::span<float> gradient, std::size_t length,
                      float factor, Sees sees);

/// Returns the cross-entropy of one row, -log softmax(logits)[target], in nats. Overwrites `logits`
/// with the gradient times `weight`: weight · (softmax(logits) - onehot(target)).
/// Before: target < logits.size().
float softmax_cross_entropy(std::span<float> logits, std::size_t target, float weight);

/// Normalises each row: y = (x - mean) · rstd · gain + bias, with rstd = 1 / sqrt(variance + 1e-5).
///
/// Shape: x and y are [rows, width], gain and bias [width], mean and rstd [rows].
/// Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
void layer_norm(std::span<const float> x, std::span<const float> gain, std::span<const float> bias,
                std::span<float> y, std::span<float> mean, std::span<float> rstd);

/// Computes the gradients of `layer_norm`. dx is overwritten; dgain and dbias are overwritten or
/// added to, according to `into`. x, mean and rstd are those of the forward pass.
void layer_norm_backward(std::span<const float> dy, std::span<const float> x,
                         std::span<const float> gain, std::span<const float> mean,
                         std::span<const float> rstd, std::span<float> dx, std::span<float> dgain,
                         std::span<float> dbias, Into into);

/// Adds sums of d = x[i, j] - pivot[j] over the rows i: sums[j] += sum of d, and squares[j] += sum
/// of d². Sums are fp32 within blocks of rows and fp64 across blocks. A pivot near the mean keeps d
/// small, so the sums stay precise.
///
/// Shape: x is [rows, pivot.size()], sums and squares have pivot.size() elements.
void add_column_moments(std::span<const float> x, std::span<const float> pivot,
                        std::span<double> sums, std::span<double> squares);

/// Computes y[i, j] = x[i, j] · scale[j] + shift[j]. Shape: x and y are [rows, scale.size()].
void scale_and_shift_columns(std::span<const float> x, std::span<const float> scale,
                             std::span<const float> shift, std::span<float> y);

/// Adds two sums over the rows i, with n[i, j] = (x[i, j] - mean[j]) · rstd[j]: sums[j] += sum of
/// dy[i, j], and slopes[j] += sum of dy[i, j] · n[i, j]. Precision and shapes are those of
/// `add_column_moments`.
void add_normalized_slopes(std::span<const float> dy, std::span<const float> x,
                           std::span<const float> mean, std::span<const float> rstd,
                           std::span<double> sums, std::span<double> slopes);

/// Computes dx[i, j] = a[j] · dy[i, j] + b[j] · x[i, j] + c[j]. Shape: dy, x and dx are [rows,
/// a.size()].
void combine_columns(std::span<const float> dy, std::span<const float> x, std::span<const float> a,
                     std::span<const float> b, std::span<const float> c, std::span<float> dx);

/// Rotates pairs of elements. x consists of vectors of 2n elements, n = cosines.size(); the pair
/// (x[i], x[i + n]) of each vector, rotated by the angle of cosine cosines[i] and sine sines[i], is
/// written to y.
/// Before: x and y have the same size, a multiple of 2n, and do not overlap.
void rotate_pairs(std::span<const float> x, std::span<const float> cosines,
                  std::span<const float> sines, std::span<float> y);

/// Computes the element-wise part of one LSTM step. Each row has four gates i, f, g and o. The
/// function tanh squashes g, and the logistic function σ squashes i, f and o:
///
///     cells    = σ(f) · previous + σ(i) · tanh(g)
///     squashed = tanh(cells)
///     states   = σ(o) · squashed
///
/// Shape: `gates` is [rows, 4 · width], with i, f, g and o side by side, and is overwritten by the
///        squashed gates. The other arrays are [rows, width].
/// Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 1997; gate f
///         from Gers et al., "Learning to Forget", Neural Computation 2000.
void lstm_cells(std::span<float> gates, std::span<const float> previous, std::size_t width,
                std::span<float> cells, std::span<float> squashed, std::span<float> states);

/// Computes the gradients of one `lstm_cells` step. The gradient of `states` is dy +
/// state_gradient: dy comes from the layer's output, state_gradient from the next step.
/// `cell_gradient` is first the gradient of `cells` from the next step, then that of `previous`.
///
/// Shape: as in `lstm_cells`. `gates` holds the squashed gates, and is overwritten by the gradients
/// of the gates before squashing.
void lstm_cells_backward(std::span<const float> dy, std::span<const float> state_gradient,
                         std::span<const float> previous, std::span<const float> squashed,
                         std::size_t width, std::span<float> cell_gradient, std::span<float> gates);

/// Rounds to the nearest bfloat16, ties to even, as `to_bfloat16` does. Before: equal sizes.
void round_to_bfloat16(std::span<const float> values, std::span<BFloat16> out);

/// Converts bfloat16 to float32 exactly; NaN stays NaN. Before: equal sizes.
void widen(std::span<const BFloat16> values, std::span<float> out);

struct SgdStep {
  float lr;
  float momentum;
  float weight_decay;
  float gradient_scale;
  bool nesterov = false;
};

/// Performs one step of SGD with momentum: g = gradient_scale · gradient + weight_decay · value;
/// velocity = momentum · velocity + g; value -= lr · velocity. With `nesterov`, the last assignment
/// is value -= lr · (g + momentum · velocity).
/// Before: equal sizes.
void sgd_update(const SgdStep& step, std::span<const float> gradient, std::span<float> velocity,
                std::span<float> value);

struct AdamWStep {
  float lr;
  float beta1;
  float beta2;
  float epsilon;
  float weight_decay;
  float bias_correction1;  ///< 1 / (1 - beta1^t) in step t, counted from 1.
  float bias_correction2;  ///< 1 / (1 - beta2^t) in step t, counted from 1.
  float gradient_scale;
};

/// Performs one step of AdamW with the moments m and v. Before: equal sizes.
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2.
void adamw_update(const AdamWStep& step, std::span<const float> gradient, std::span<float> m,
                  std::span<float> v, std::span<float> value);

/// Computes the direction d for which `adamw_update` would subtract lr · d from `value`. It updates
/// the moments and overwrites the gradient with d. Before: equal sizes.
void adamw_direction(const AdamWStep& step, std::span<float> gradient, std::span<float> m,
                     std::span<float> v, std::span<const float> value);

struct SecondMomentStep {
  float beta2;
  float square_scale;  ///< Factor of the squared gradient.
};

/// Computes new_v = beta2 · v + (1 - beta2) · square_scale · gradient². Before: equal sizes.
void second_moment_update(const SecondMomentStep& step, std::span<const float> gradient,
                          std::span<const float> v, std::span<float> new_v);

struct AdamDirectionStep {
  float epsilon;
  float moment_scale;  ///< Factor of the second moment, such as 1 / (1 - beta2^t).
};

/// Divides `gradient` by sqrt(v · moment_scale) + epsilon. Before: equal sizes.
void adam_direction(const AdamDirectionStep& step, std::span<const float> v,
                    std::span<float> gradient);

}  // namespace kolo::trainer
