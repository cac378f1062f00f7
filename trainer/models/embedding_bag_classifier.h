#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/layers/dropout.h"
#include "trainer/layers/embedding_bag.h"
#include "trainer/layers/linear.h"
#include "trainer/models/model.h"
#include "trainer/models/text_classifier.h"

namespace kolo::trainer {

/// The mean of the vectors of a text's words, dropout, and the classes.
///
/// Inputs: "tokens", int32 [length], and "length", int32. A row of the output holds the logits of
/// the classes.
class EmbeddingBagClassifier final : public Model {
 public:
  static ModelEntry entry();

  EmbeddingBagClassifier(Device& device, const TextModelOptions& options);

  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;

 private:
  EmbeddingBag words_;
  Dropout dropout_;
  Linear output_;
};

}  // namespace kolo::trainer
