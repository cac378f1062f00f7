#include "trainer/mesh/pipeline.h"

#include <algorithm>

#include "trainer/kernels/kernels.h"

namespace kolo::trainer {
namespace {

/// Views `values` as the buffer of a message to send.
BufferView to_send(std::span<const float> values) {
  return {const_cast<float*>(values.data()), values.size(), DType::kFloat32};
}

}  // namespace

std::size_t open_passes(const Stage& stage, std::size_t passes) {
  return std::min(passes, stage.count - stage.index);
}

std::vector<StagePass> order_of_passes(const Stage& stage, std::size_t passes) {
  const std::size_t ahead = open_passes(stage, passes) - 1;
  std::vector<StagePass> order;
  for (std::size_t pass = 0; pass < passes + ahead; ++pass) {
    if (pass < passes) order.push_back({true, pass});
    if (pass >= ahead) order.push_back({false, pass - ahead});
  }
  return order;
}

Pipeline::Pipeline(Mesh& mesh, std::span<const std::unique_ptr<Model>> models, Loss& loss,
                   std::size_t passes)
    : mesh_(mesh),
      models_(models),
      loss_(loss),
      stage_(mesh.stage()),
      order_(order_of_passes(stage_, passes)),
      distance_(static_cast<int>(mesh.shape().stage_ranks())),
      inputs_(models.size() + 1),
      outputs_sent_(models.size()),
      gradients_sent_(models.size()),
      table_(models[0]->shared_table()) {
  if (table_ == nullptr) return;
  table_->owner().accumulate(passes);
  table_gradient_ = Tensor(table_->shape());
  if (stage_.is_first()) table_->share();  // the last stage contributes, too
}

LossSums Pipeline::train(const Batch& batch, float row_weight) {
  const std::size_t pass = order_[next_].pass;
  const LossSums sums = forward(pass, batch, true, row_weight);
  while (++next_ < order_.size() && !order_[next_].is_forward) backward(order_[next_].pass);
  if (next_ < order_.size()) return sums;
  complete_table();
  next_ = 0;
  return sums;
}

LossSums Pipeline::evaluate(const Batch& batch) { return forward(0, batch, false, 1.0f); }

LossSums Pipeline::forward(std::size_t pass, const Batch& batch, bool is_training,
                           float row_weight) {
  Input& input = input_of(pass);
  if (stage_.is_first()) {
    const TensorView& given = batch.inputs.at(0);
    input.dtype = given.dtype();
    input.bytes.assign(given.bytes().begin(), given.bytes().end());
  } else if (!input.arrival) {
    expect_input(pass);
  }
  wait(input.arrival);
  if (is_training && 2 * (pass + 1) < order_.size()) expect_input(pass + 1);
  const std::size_t place = pass % models_.size();
  wait(outputs_sent_[place]);
  wait(gradients_sent_[place]);
  const TensorView view(input.dtype, input.bytes);
  const std::span<const float> output =
      models_[place]->forward({&view, 1}, {.is_training = is_training,
                                           .samples = batch.samples,
                                           .epoch = batch.epoch,
                                           .first_position = batch.first_position});
  if (stage_.is_last()) return loss_.evaluate(output, batch.targets, row_weight);
  outputs_sent_[place] = mesh_.world().send(to_send(output), stage_after(), kActivation);
  if (output_gradient_.size() == 0) output_gradient_ = Tensor({output.size()});
  if (is_training && pass == 0) expect_gradient();
  return {};
}

void Pipeline::expect_input(std::size_t pass) {
  if (stage_.is_first()) return;
  Input& input = input_of(pass);
  const std::size_t elements = models_[0]->stage_inputs();
  input.bytes.resize(elements * sizeof(float));
  input.arrival = mesh_.world().recv({input.bytes.data(), elements, DType::kFloat32},
                                     stage_before(), kActivation);
}

void Pipeline::expect_gradient() {
  if (stage_.is_last()) return;
  gradient_ = mesh_.world().recv(output_gradient_.span(), stage_after(), kGradient);
}

void Pipeline::backward(std::size_t pass) {
  const std::size_t place = pass % models_.size();
  Model& model = *models_[place];
  wait(gradient_);
  model.backward(stage_.is_last() ? loss_.gradient() : output_gradient_.span());
  if (2 * (pass + 1) < order_.size()) expect_gradient();
  if (stage_.is_first()) return;
  gradients_sent_[place] =
      mesh_.world().send(to_send(model.input_gradient()), stage_before(), kGradient);
}

int Pipeline::other_end() const {
  const int length = distance_ * static_cast<int>(stage_.count - 1);
  return mesh_.world().rank() + (stage_.is_first() ? length : -length);
}

void Pipeline::complete_table() {
  if (table_ == nullptr) return;
  std::optional<Ticket> gradient;
  if (stage_.is_first()) {
    gradient = mesh_.world().recv(table_gradient_.span(), other_end(), kTableGradient);
    wait(gradient);
    add(table_->gradient(), table_gradient_.span(), table_->gradient());
  } else {
    gradient = mesh_.world().send(table_->gradient(), other_end(), kTableGradient);
    wait(gradient);
  }
  for (std::size_t pass = 0; 2 * pass < order_.size(); ++pass) table_->contributed();
}

void Pipeline::share_table() {
  if (table_ == nullptr) return;
  mesh_.communicate([&] {
    if (stage_.is_first()) {
      mesh_.world().send(table_->value(), other_end(), kTableValue).wait();
    } else {
      mesh_.world().recv(table_->value(), other_end(), kTableValue).wait();
    }
  });
}

void Pipeline::wait(std::optional<Ticket>& ticket) {
  if (!ticket) return;
  const auto begin = std::chrono::steady_clock::now();
  ticket->wait();
  ticket.reset();
  waited_ += std::chrono::steady_clock::now() - begin;
}

}  // namespace kolo::trainer
