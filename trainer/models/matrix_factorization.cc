#include "trainer/models/matrix_factorization.h"

#include <numeric>

#include "comm/base/check.h"
#include "trainer/config.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer {
namespace {

Lookup::Options table(std::size_t ratings, std::size_t entries, std::size_t width,
                      float deviation) {
  return {.count = ratings,
          .entries = entries,
          .width = width,
          .deviation = deviation,
          .padding = std::int32_t{0}};
}

constexpr float kFactorDeviation = 0.05f;

}  // namespace

ModelEntry MatrixFactorization::entry() {
  return {.name = "matrix-factorization",
          .task = "rating",
          .help = "biases and factors of users and items",
          .set_defaults =
              [](Config& config) {
                config.epochs = 10;
                config.batch = 64;
                config.width = 16;
                config.lr = 2e-3f;
                config.final_lr_share = 0.0f;
                config.optimizer_options.weight_decay = 0.5f;
                config.optimizer_options.beta2 = 0.999f;
                config.log_every = 500;
              },
          .make =
              [](const ModelSetting& setting, Device&) {
                const SampleFormat& format = setting.format;
                check(format.inputs.size() == 2 && setting.outputs == 1,
                      "matrix-factorization takes a user and an item");
                return std::make_unique<MatrixFactorization>(
                    Options{.ratings = setting.batch,
                            .users = format.inputs[0].values,
                            .items = format.inputs[1].values,
                            .width = setting.config.width,
                            .mean = static_cast<float>(format.targets[0].mean),
                            .seed = setting.config.seed});
              },
          .reads = {"--width"}};
}

MatrixFactorization::MatrixFactorization(const Options& o)
    : Model(o.seed),
      options_(o),
      bias_(parameters().add("bias", {1}, {.mean = o.mean})),
      user_bias_(parameters(), "user.bias", table(o.ratings, o.users, 1, 0.0f)),
      item_bias_(parameters(), "item.bias", table(o.ratings, o.items, 1, 0.0f)),
      user_factors_(parameters(), "user.factors",
                    table(o.ratings, o.users, o.width, kFactorDeviation)),
      item_factors_(parameters(), "item.factors",
                    table(o.ratings, o.items, o.width, kFactorDeviation)),
      output_({o.ratings}),
      user_gradient_({o.ratings, o.width}),
      item_gradient_({o.ratings, o.width}) {}

std::span<const float> MatrixFactorization::forward(std::span<const TensorView> inputs,
                                                    const Pass&) {
  const auto users = inputs[0].as<std::int32_t>();
  const auto items = inputs[1].as<std::int32_t>();
  const std::span<const float> user_bias = user_bias_.forward(users);
  const std::span<const float> item_bias = item_bias_.forward(items);
  users_ = user_factors_.forward(users);
  items_ = item_factors_.forward(items);
  for (std::size_t i = 0; i < options_.ratings; ++i) {
    const std::span<const float> user = users_.subspan(i * options_.width, options_.width);
    const std::span<const float> item = items_.subspan(i * options_.width, options_.width);
    output_.data()[i] = bias_.value()[0] + user_bias[i] + item_bias[i] +
                        std::inner_product(user.begin(), user.end(), item.begin(), 0.0f);
  }
  return output_.span();
}

void MatrixFactorization::backward(std::span<const float> output_gradient) {
  for (std::size_t i = 0; i < options_.ratings; ++i) {
    for (std::size_t j = i * options_.width; j < (i + 1) * options_.width; ++j) {
      user_gradient_.data()[j] = output_gradient[i] * items_[j];
      item_gradient_.data()[j] = output_gradient[i] * users_[j];
    }
  }
  item_factors_.backward(item_gradient_.span());
  user_factors_.backward(user_gradient_.span());
  item_bias_.backward(output_gradient);
  user_bias_.backward(output_gradient);
  sum_rows(output_gradient, bias_.gradient(), bias_.next_contribution());
  bias_.contributed();
}

}  // namespace kolo::trainer
