#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/config_option.h"

namespace kolo::trainer {

/// Options of models. Each model reads some of them. The shape of samples comes from the data.
struct ModelOptions {
  std::size_t layers = 4;             ///< Transformer blocks of gpt and bert.
  std::size_t width = 128;            ///< Elements per vector of a token, word, user or item.
  std::size_t heads = 4;              ///< Attention heads of gpt and bert.
  std::string positions = "learned";  ///< Positions of gpt: "learned" or "rotary"; see Gpt.
  bool tied = true;              ///< Whether gpt's output layer uses the table of its embedding.
  std::size_t hidden = 128;      ///< Width of hidden dense layers of image models.
  float dropout = 0.0f;          ///< Fraction of elements that gpt, bert and text classifiers drop.
  bool row_gradients = true;     ///< Whether gradients of embedding tables are sparse (rows).
  bool sync_batch_norm = false;  ///< Whether batch norm takes statistics over all ranks.
};

/// The command-line options of models. To add one, add a field above and its row here.
inline std::vector<ConfigOption> model_options(ModelOptions& c) {
  return {
      {"--layers", &c.layers, kAtLeastOne, "gpt, bert: number of transformer blocks"},
      {"--width", &c.width, kAtLeastOne,
       "gpt, bert: elements per position, a multiple of --heads; models of texts and ratings: "
       "elements of the vector of a word, user or item; lstm: of its states, too"},
      {"--heads", &c.heads, kAtLeastOne, "gpt, bert: number of attention heads"},
      {"--positions", &c.positions, Choices{"learned", "rotary"}, kNotOnGpus,
       "gpt: learned: a vector of each position is added; rotary: queries and keys turn by angles "
       "that follow from it"},
      {"--tied", &c.tied, kAny, kNotOnGpus,
       "gpt: on: the output layer multiplies by the table of the embedding; off: by one of its "
       "own"},
      {"--hidden", &c.hidden, kAtLeastOne, "image models: width of hidden dense layers"},
      {"--dropout", &c.dropout, kShareBelowOne, kNotOnGpus,
       "Share of elements that training drops at random; gpt: of embeddings, attention weights and "
       "what each block adds; models of texts: before the output layer, and of bert before each "
       "sum"},
      {"--row-gradients", &c.row_gradients,
       "on: gradients of tables of words, users and items are the rows that a step used, and only "
       "these are sent and updated"},
      {"--sync-batch-norm", &c.sync_batch_norm, kAny, kNotOnGpus,
       "on: batch norm takes its statistics over the samples of all ranks (resnet)"},
  };
}

}  // namespace kolo::trainer
