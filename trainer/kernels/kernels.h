#pragma once

#include <cstddef>
#include <span>

#include "comm/base/half.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// out = a + b. Before: equal sizes; `out` may be `a` or `b`.
void add(std::span<const float> a, std::span<const float> b, std::span<float> out);

/// out = a · b, element by element. Before: equal sizes; `out` may be `a` or `b`.
void multiply_elements(std::span<const float> a, std::span<const float> b, std::span<float> out);

/// out += factor · values. Before: equal sizes.
void add_scaled(std::span<const float> values, float factor, std::span<float> out);

/// values *= factor.
void scale(std::span<float> values, float factor);

/// Copies `row` into each of the rows of `matrix`, whose width is row.size().
void repeat_row(std::span<const float> row, std::span<float> matrix);

/// sums[j] = sum over rows i of matrix[i, j], in row order; with Into::kAdd, sums[j] += that sum.
/// Shape: matrix is [rows, sums.size()].
void sum_rows(std::span<const float> matrix, std::span<float> sums, Into into = Into::kOverwrite);

/// Sum of the squares, in a fixed order, fp32 within blocks and fp64 between them.
double sum_of_squares(std::span<const float> values);

/// y = max(x, 0) and slope = 1 where x > 0, else 0. Before: equal sizes.
void relu(std::span<const float> x, std::span<float> y, std::span<float> slope);

/// y = x · Φ(x) in the tanh approximation, and slope is its derivative at x, so that the backward
/// pass is one product and needs no second tanh. Before: equal sizes.
///
/// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
void gelu(std::span<const float> x, std::span<float> y, std::span<float> slope);

/// y = tanh(x), and slope is its derivative at x. Before: equal sizes.
void tanh(std::span<const float> x, std::span<float> y, std::span<float> slope);

/// The positions that a row of attention sees. The rows are the last ones of `length` positions.
enum class Sees {
  kEarlier,  ///< Row i of `rows`, at position length - rows + i, sees positions up to its own.
  kAll,
};

/// Computes attention weights in place: each row becomes softmax(factor · scores) over the
/// positions that it sees, and zero elsewhere. Shape: scores is [rows, length].
void softmax(std::span<float> scores, std::size_t length, float factor, Sees sees);

/// Turns the gradient of the weights into the gradient of the unscaled scores, in place in
/// `gradient`: factor · w (g - sum(g w)) for positions that a row sees, zero elsewhere.
void softmax_backward(std::span<const float> weights, std::span<float> gradient, std::size_t length,
                      float factor, Sees sees);

/// Cross-entropy of one row: returns -log softmax(logits)[target] in nats, and overwrites `logits`
/// with its gradient times `weight`: weight · (softmax(logits) - onehot(target)).
/// Before: target < logits.size().
float softmax_cross_entropy(std::span<float> logits, std::size_t target, float weight);

/// Layer norm of each row: y = (x - mean) · rstd · gain + bias, rstd = 1 / sqrt(variance + 1e-5).
///
/// Shape: x and y are [rows, gain.size()], gain and bias [width], mean and rstd [rows].
/// Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
void layer_norm(std::span<const float> x, std::span<const float> gain, std::span<const float> bias,
                std::span<float> y, std::span<float> mean, std::span<float> rstd);

/// The gradients of layer norm; dgain and dbias are overwritten or added to as `into` says. x, mean
/// and rstd are as in the forward pass.
void layer_norm_backward(std::span<const float> dy, std::span<const float> x,
                         std::span<const float> gain, std::span<const float> mean,
                         std::span<const float> rstd, std::span<float> dx, std::span<float> dgain,
                         std::span<float> dbias, Into into);

/// With d = x[i, j] - pivot[j]: sums[j] += sum over rows i of d, and squares[j] += sum over rows i
/// of d². Sums are fp32 within blocks of rows and fp64 between them, so that a pivot near the mean
/// loses no digits.
///
/// Shape: x is [rows, pivot.size()], sums and squares have pivot.size() elements.
void add_column_moments(std::span<const float> x, std::span<const float> pivot,
                        std::span<double> sums, std::span<double> squares);

/// y[i, j] = x[i, j] · scale[j] + shift[j]. Shape: x and y are [rows, scale.size()].
void scale_and_shift_columns(std::span<const float> x, std::span<const float> scale,
                             std::span<const float> shift, std::span<float> y);

/// With n[i, j] = (x[i, j] - mean[j]) · rstd[j]: sums[j] += sum over i of dy[i, j], and slopes[j]
/// += sum over i of dy[i, j] · n[i, j]. Precision and shapes are as in `add_column_moments`.
void add_normalized_slopes(std::span<const float> dy, std::span<const float> x,
                           std::span<const float> mean, std::span<const float> rstd,
                           std::span<double> sums, std::span<double> slopes);

/// dx[i, j] = a[j] · dy[i, j] + b[j] · x[i, j] + c[j]. Shape: dy, x and dx are [rows, a.size()].
void combine_columns(std::span<const float> dy, std::span<const float> x, std::span<const float> a,
                     std::span<const float> b, std::span<const float> c, std::span<float> dx);

/// Writes x to y with pairs of elements rotated. x holds vectors of 2n elements side by side, where
/// n = cosines.size(); pair i of each is (x[i], x[i + n]) and rotates by the angle with cosine
/// cosines[i] and sine sines[i].
/// Before: equal sizes of x and y, multiples of 2n; y is not x.
void rotate_pairs(std::span<const float> x, std::span<const float> cosines,
                  std::span<const float> sines, std::span<float> y);

/// The element-wise part of one step of an LSTM. A row has four gates i, f, g, o; tanh squashes g,
/// and the logistic function σ squashes the others:
///
///     cells    = σ(f) · previous + σ(i) · tanh(g)
///     squashed = tanh(cells)
///     states   = σ(o) · squashed
///
/// Shape: gates are [rows, 4 · width], with i, f, g and o side by side, and are overwritten by
///        their squashed values; everything else is [rows, width].
/// Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 1997; gate f
///         from Gers et al., "Learning to Forget", Neural Computation 2000.
void lstm_cells(std::span<float> gates, std::span<const float> previous, std::size_t width,
                std::span<float> cells, std::span<float> squashed, std::span<float> states);

/// The gradients of one `lstm_cells` step. The gradient of the states is dy + state_gradient, where
/// dy comes from the layer's output and state_gradient from the next step. `cell_gradient` is the
/// gradient of this step's cells from the next step, and becomes the gradient of the previous
/// cells.
///
/// Shape: as above; `gates` holds the squashed gates, and receives the gradients of their inputs.
void lstm_cells_backward(std::span<const float> dy, std::span<const float> state_gradient,
                         std::span<const float> previous, std::span<const float> squashed,
                         std::size_t width, std::span<float> cell_gradient, std::span<float> gates);

/// Rounds to nearest, ties to even, as `to_bfloat16`. Before: equal sizes.
void round_to_bfloat16(std::span<const float> values, std::span<BFloat16> out);

/// Exact; NaN stays NaN. Before: equal sizes.
void widen(std::span<const BFloat16> values, std::span<float> out);

struct SgdStep {
  float lr;
  float momentum;
  float weight_decay;
  float gradient_scale;
  bool nesterov = false;
};

/// g = gradient_scale · gradient + weight_decay · value; velocity = momentum · velocity + g;
/// value -= lr · velocity, or with Nesterov's correction lr · (g + momentum · velocity).
/// Before: equal sizes.
void sgd_update(const SgdStep& step, std::span<const float> gradient, std::span<float> velocity,
                std::span<float> value);

struct AdamWStep {
  float lr;
  float beta1;
  float beta2;
  float epsilon;
  float weight_decay;
  float bias_correction1;  ///< 1 / (1 - beta1^t)
  float bias_correction2;  ///< 1 / (1 - beta2^t)
  float gradient_scale;
};

/// One step of AdamW with the moments m and v. Before: equal sizes.
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2.
void adamw_update(const AdamWStep& step, std::span<const float> gradient, std::span<float> m,
                  std::span<float> v, std::span<float> value);

/// Computes the direction d such that `adamw_update` would add -lr · d to `value`: updates the
/// moments, leaves `value` unchanged, and overwrites the gradient with d. Before: equal sizes.
void adamw_direction(const AdamWStep& step, std::span<float> gradient, std::span<float> m,
                     std::span<float> v, std::span<const float> value);

struct SecondMomentStep {
  float beta2;
  float square_scale;  ///< Factor of the squares of the gradient.
};

/// new_v = beta2 · v + (1 - beta2) · square_scale · gradient². Before: equal sizes.
void second_moment_update(const SecondMomentStep& step, std::span<const float> gradient,
                          std::span<const float> v, std::span<float> new_v);

struct AdamDirectionStep {
  float epsilon;
  float moment_scale;  ///< Factor of the second moment, such as 1 / (1 - beta2^t).
};

/// gradient /= sqrt(v · moment_scale) + epsilon. Before: equal sizes.
void adam_direction(const AdamDirectionStep& step, std::span<const float> v,
                    std::span<float> gradient);

}  // namespace kolo::trainer
