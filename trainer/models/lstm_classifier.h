#pragma once

#include <cstdint>
#include <vector>

#include "trainer/layers/dropout.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/lookup.h"
#include "trainer/layers/lstm.h"
#include "trainer/layers/packed_sequences.h"
#include "trainer/layers/sequence_mean.h"
#include "trainer/models/model.h"
#include "trainer/models/text_classifier.h"

namespace kolo::trainer {

/// An LSTM over the vectors of a text's words, the mean of its states, dropout, and the classes.
///
/// The mean of all states rather than the last one: it learns faster, and of long texts more.
///
/// Inputs: "tokens", int32 [length], and "length", int32. A row of the output holds the logits of
/// the classes.
class LstmClassifier final : public Model {
 public:
  static ModelEntry entry();

  LstmClassifier(Device& device, const TextModelOptions& options);

  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;

 private:
  PackedSequences texts_;
  std::vector<std::int32_t> ids_;  // of the rows of texts_
  Lookup words_;
  Lstm lstm_;
  SequenceMean mean_;
  Dropout dropout_;
  Linear output_;
};

}  // namespace kolo::trainer
