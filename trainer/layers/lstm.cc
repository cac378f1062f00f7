#include "trainer/layers/lstm.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/base/check.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer {
namespace {

std::size_t in_blocks(std::size_t rows) {
  constexpr std::size_t kBlock = PackedSequences::kRowBlock;
  return std::max((rows + kBlock - 1) / kBlock, std::size_t{1}) * kBlock;
}

}  // namespace

PackedSequences::PackedSequences(std::size_t sequences, std::size_t length)
    : capacity_(in_blocks(sequences * length)), lengths_(sequences), order_(sequences) {
  places_.reserve(sequences * length);
  steps_.reserve(length);
}

void PackedSequences::assign(std::span<const std::int32_t> lengths) {
  check(lengths.size() == lengths_.size(), "as many sequences are packed as there is room for");
  std::ranges::copy(lengths, lengths_.begin());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::sort(order_, [this](std::size_t a, std::size_t b) {
    return std::pair(lengths_[b], a) < std::pair(lengths_[a], b);
  });
  places_.clear();
  steps_.clear();
  for (std::size_t going_on = order_.size();;) {
    while (going_on > 0 && lengths_[order_[going_on - 1]] <= steps_.size()) --going_on;
    if (going_on == 0) break;
    const std::size_t step = steps_.size();
    steps_.push_back({places_.size(), going_on});
    for (std::size_t i = 0; i < going_on; ++i) places_.push_back({order_[i], step});
  }
}

std::size_t PackedSequences::rows() const { return in_blocks(places_.size()); }

Lstm::Lstm(Device& device, ParameterSet& parameters, const std::string& name,
           const PackedSequences& sequences, const Options& o)
    : sequences_(sequences),
      options_(o),
      products_(device.products()),
      input_weight_(parameters.add(name + ".input.weight", {4 * o.width, o.inputs},
                                   {.deviation = o.deviation})),
      state_weight_(parameters.add(name + ".state.weight", {4 * o.width, o.width},
                                   {.deviation = o.deviation})),
      bias_(parameters.add(name + ".bias", {4 * o.width}, {})),
      gates_({sequences.capacity(), 4 * o.width}),
      previous_({sequences.capacity(), o.width}),
      cells_({sequences.capacity(), o.width}),
      squashed_({sequences.capacity(), o.width}),
      output_({sequences.capacity(), o.width}),
      initial_cells_({sequences.sequences(), o.width}),
      state_gradient_({sequences.sequences(), o.width}),
      cell_gradient_({sequences.sequences(), o.width}),
      input_gradient_({sequences.capacity(), o.inputs}),
      input_weight_factor_(device, input_weight_),
      state_weight_factor_(device, state_weight_),
      input_factor_(device, input_gradient_.size()),
      previous_factor_(device, previous_.size()),
      gradient_factor_(device, gates_.size()),
      step_factor_(device, sequences.sequences() * 4 * o.width) {}

std::span<float> Lstm::rows_of(PackedSequences::Step step, Tensor& tensor) {
  const std::size_t width = tensor.shape()[1];
  return tensor.span().subspan(step.begin * width, step.rows * width);
}

std::span<const float> Lstm::forward(std::span<const float> input, const Pass&) {
  const std::size_t rows = sequences_.rows();
  const std::size_t width = options_.width;
  check(input.size() == rows * options_.inputs, "an LSTM reads all rows of packed sequences");
  input_weight_factor_.refresh();
  state_weight_factor_.refresh();
  input_factor_.assign(input);
  products_.multiply(input_factor_.operand(rows, options_.inputs),
                     transposed(input_weight_factor_.operand()), std::as_const(bias_).value(),
                     {gates_.data(), rows, 4 * width, 4 * width});
  for (std::size_t t = 0; t < sequences_.steps().size(); ++t) {
    const PackedSequences::Step step = sequences_.steps()[t];
    const std::span<float> gates = rows_of(step, gates_);
    const std::span<float> previous = rows_of(step, previous_);
    if (t == 0) {
      std::ranges::fill(previous, 0.0f);
    } else {
      std::ranges::copy(rows_of({sequences_.steps()[t - 1].begin, step.rows}, output_),
                        previous.begin());
      step_factor_.assign(previous);
      products_.multiply(step_factor_.operand(step.rows, width),
                         transposed(state_weight_factor_.operand()),
                         {gates.data(), step.rows, 4 * width, 4 * width}, Into::kAdd);
    }
    lstm_cells(gates, cells_before(t), width, rows_of(step, cells_), rows_of(step, squashed_),
               rows_of(step, output_));
  }
  return output_.span().first(rows * width);
}

std::span<const float> Lstm::backward(std::span<const float> output_gradient) {
  const std::size_t rows = sequences_.rows();
  const std::size_t width = options_.width;
  state_gradient_.fill(0.0f);
  cell_gradient_.fill(0.0f);
  for (std::size_t t = sequences_.steps().size(); t-- > 0;) {
    const PackedSequences::Step step = sequences_.steps()[t];
    const PackedSequences::Step first{0, step.rows};
    const std::span<float> gates = rows_of(step, gates_);
    lstm_cells_backward(output_gradient.subspan(step.begin * width, step.rows * width),
                        rows_of(first, state_gradient_), cells_before(t), rows_of(step, squashed_),
                        width, rows_of(first, cell_gradient_), gates);
    if (t == 0) break;
    step_factor_.assign(gates);
    products_.multiply(step_factor_.operand(step.rows, 4 * width), state_weight_factor_.operand(),
                       {state_gradient_.data(), step.rows, width, width});
  }
  // Padding of the input is multiplied by zeros, so gates and states of padding must be zero.
  const std::size_t real = sequences_.places().size();
  const PackedSequences::Step padding{real, rows - real};
  std::ranges::fill(rows_of(padding, gates_), 0.0f);
  std::ranges::fill(rows_of(padding, previous_), 0.0f);

  const std::span<const float> gradient = rows_of({0, rows}, gates_);
  gradient_factor_.assign(gradient);
  previous_factor_.assign(rows_of({0, rows}, previous_));
  const Operand dgates = gradient_factor_.operand(rows, 4 * width);
  products_.multiply(transposed(dgates), previous_factor_.operand(rows, width),
                     {state_weight_.gradient().data(), 4 * width, width, width},
                     state_weight_.next_contribution());
  state_weight_.contributed();
  products_.multiply(transposed(dgates), input_factor_.operand(rows, options_.inputs),
                     {input_weight_.gradient().data(), 4 * width, options_.inputs, options_.inputs},
                     input_weight_.next_contribution());
  input_weight_.contributed();
  sum_rows(gradient, bias_.gradient(), bias_.next_contribution());
  bias_.contributed();
  products_.multiply(dgates, input_weight_factor_.operand(),
                     {input_gradient_.data(), rows, options_.inputs, options_.inputs});
  return input_gradient_.span().first(rows * options_.inputs);
}

std::span<const float> Lstm::cells_before(std::size_t step) const {
  const std::size_t count = sequences_.steps()[step].rows * options_.width;
  if (step == 0) return initial_cells_.span().first(count);
  return cells_.span().subspan(sequences_.steps()[step - 1].begin * options_.width, count);
}

std::span<const float> SequenceMean::forward(std::span<const float> input, const Pass&) {
  output_.fill(0.0f);
  std::size_t row = 0;
  for (const auto [sequence, step] : sequences_.places()) {
    add_scaled(input.subspan(row++ * width_, width_), share_of_a_row(sequence),
               output_.span().subspan(sequence * width_, width_));
  }
  return output_.span();
}

std::span<const float> SequenceMean::backward(std::span<const float> output_gradient) {
  const std::span<float> gradient = input_gradient_.span().first(sequences_.rows() * width_);
  std::ranges::fill(gradient, 0.0f);
  std::size_t row = 0;
  for (const auto [sequence, step] : sequences_.places()) {
    add_scaled(output_gradient.subspan(sequence * width_, width_), share_of_a_row(sequence),
               gradient.subspan(row++ * width_, width_));
  }
  return gradient;
}

}  // namespace kolo::trainer
