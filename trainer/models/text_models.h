#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/layers/layer.h"
#include "trainer/layers/lstm.h"
#include "trainer/layers/tables.h"
#include "trainer/model_options.h"
#include "trainer/models/model.h"

namespace kolo::trainer {

/// The shape of the data and other settings of a model that classifies texts.
struct TextModelOptions {
  std::size_t texts;   ///< Number of texts per batch.
  std::size_t length;  ///< Number of word positions per text, including padding.
  std::size_t words;   ///< Size of the vocabulary.
  std::size_t classes;
  ModelOptions model;
  std::uint64_t seed;
};

/// The options for `setting`. Errors: KoloError(kConfig) if samples are not a text and its length.
TextModelOptions text_model_options(const ModelSetting& setting);

/// Standard deviation of the initial vectors of words.
inline constexpr float kWordDeviation = 0.1f;

/// A bag-of-words classifier: the mean of the word vectors, dropout, and the output layer.
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
  Sequential layers_;
};

/// A classifier of an LSTM over the word vectors of a text, the mean of its states, dropout, and
/// the output layer.
///
/// The mean of all states trains faster than the last state alone, and better on long texts.
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
  std::vector<std::int32_t> ids_;  // word numbers of the rows of texts_
  Lookup words_;
  Sequential layers_;
};

}  // namespace kolo::trainer
