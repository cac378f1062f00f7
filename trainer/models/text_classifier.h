#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/models/model.h"

namespace kolo::trainer {

/// Shape of the data and the batch of a model that gives each text one class.
struct TextModelOptions {
  std::size_t texts;   ///< Texts per batch.
  std::size_t length;  ///< Words of a text at most.
  std::size_t words;   ///< Size of the vocabulary.
  std::size_t width;   ///< Elements of a word's vector, and of a state.
  std::size_t classes;
  float dropout;  ///< Share; see Dropout.
  std::uint64_t seed;
};

/// Errors: KoloError(kConfig) for samples other than a text and its length.
TextModelOptions text_model_options(const ModelSetting& setting);

/// The defaults that all classifiers of texts share.
void set_text_defaults(Config& config);

/// Deviation of the initial vectors of words.
inline constexpr float kWordDeviation = 0.1f;

}  // namespace kolo::trainer
