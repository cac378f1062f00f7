#include "trainer/mesh/pipeline.h"

#include <algorithm>
#include <utility>

#include "trainer/kernels/kernels.h"

namespace kolo::trainer {
Pipeline::Pipeline(Mesh& mesh, Model& model, Loss& loss, std::size_t passes)
    : mesh_(mesh),
      model_(model),
      loss_(loss),
      passes_(passes),
      stage_(mesh.stage()),
      distance_(static_cast<int>(mesh.shape().stage_ranks())),
      kept_(stage_.count - stage_.index + 1) {
  if (Parameter* const table = model.shared_table()) {
    table->owner().accumulate(passes);
    table_gradient_ = Tensor(table->shape());
  }
}

LossSums Pipeline::train(const Batch& batch, float row_weight) {
  take_input(forwards_, batch, true);
  if (forwards_ + 1 < passes_) expect_input(forwards_ + 1);
  const std::span<const float> output = forward(forwards_++);
  LossSums sums;
  if (stage_.is_last()) {
    sums = loss_.evaluate(output, batch.targets, row_weight);
    backward(loss_.gradient());
  } else {
    if (output_gradient_.size() == 0) output_gradient_ = Tensor({output.size()});
    send(output, stage_after(), kActivation);
    const std::size_t after = stage_.count - 1 - stage_.index;
    while (forwards_ - backwards_ > after || (forwards_ == passes_ && backwards_ < passes_)) {
      Ticket gradient = receive(output_gradient_.span(), stage_after(), kGradient);
      if (in_layers_ != backwards_) forward(backwards_);
      wait(gradient);
      backward(output_gradient_.span());
    }
  }
  if (backwards_ < passes_) return sums;
  complete_table();
  forwards_ = backwards_ = 0;
  return sums;
}

LossSums Pipeline::evaluate(const Batch& batch) {
  take_input(0, batch, false);
  const std::span<const float> output = forward(0);
  if (stage_.is_last()) return loss_.evaluate(output, batch.targets, 1.0f);
  send(output, stage_after(), kActivation);
  return {};
}

void Pipeline::take_input(std::size_t pass, const Batch& batch, bool is_training) {
  Kept& into = kept(pass);
  into.pass = {.is_training = is_training,
               .samples = batch.samples,
               .epoch = batch.epoch,
               .first_position = batch.first_position};
  if (stage_.is_first()) {
    const TensorView& input = batch.inputs.at(0);
    into.dtype = input.dtype();
    into.bytes.assign(input.bytes().begin(), input.bytes().end());
    return;
  }
  if (!input_) expect_input(pass);
  wait(*input_);
  input_.reset();
}

void Pipeline::expect_input(std::size_t pass) {
  if (stage_.is_first()) return;
  std::vector<std::byte>& bytes = kept(pass).bytes;
  bytes.resize(model_.stage_inputs() * sizeof(float));
  input_ = receive({reinterpret_cast<float*>(bytes.data()), model_.stage_inputs()}, stage_before(),
                   kActivation);
}

std::span<const float> Pipeline::forward(std::size_t pass) {
  const TensorView input(kept(pass).dtype, kept(pass).bytes);
  in_layers_ = pass;
  return model_.forward({&input, 1}, kept(pass).pass);
}

void Pipeline::backward(std::span<const float> output_gradient) {
  model_.backward(output_gradient);
  if (!stage_.is_first()) send(model_.input_gradient(), stage_before(), kGradient);
  ++backwards_;
}

int Pipeline::other_end() const {
  const int length = distance_ * static_cast<int>(stage_.count - 1);
  return mesh_.world().rank() + (stage_.is_first() ? length : -length);
}

void Pipeline::complete_table() {
  Parameter* const table = model_.shared_table();
  if (table == nullptr) return;
  if (stage_.is_first()) {
    Ticket gradient = receive(table_gradient_.span(), other_end(), kTableGradient);
    wait(gradient);
    add(table->gradient(), table_gradient_.span(), table->gradient());
  } else {
    send(table->gradient(), other_end(), kTableGradient);
  }
  for (std::size_t pass = 0; pass < passes_; ++pass) table->contributed();
}

void Pipeline::share_table() {
  Parameter* const table = model_.shared_table();
  if (table == nullptr) return;
  if (stage_.is_first()) {
    send(std::as_const(*table).value(), other_end(), kTableValue);
  } else {
    Ticket values = receive(table->value(), other_end(), kTableValue);
    wait(values);
  }
}

void Pipeline::send(std::span<const float> values, int peer, Tag tag) {
  Sent& sent = sent_[next_sent_++ % sent_.size()];
  if (sent.ticket) wait(*sent.ticket);
  if (sent.memory.size() < values.size()) sent.memory = Tensor({values.size()});
  std::ranges::copy(values, sent.memory.data());
  sent.ticket = mesh_.world().send({sent.memory.data(), values.size(), DType::kFloat32}, peer, tag);
}

Ticket Pipeline::receive(std::span<float> values, int peer, Tag tag) {
  return mesh_.world().recv({values.data(), values.size(), DType::kFloat32}, peer, tag);
}

}  // namespace kolo::trainer
