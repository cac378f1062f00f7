#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/config_option.h"

namespace kolo::trainer {

/// Options of models, apart from the shape of their data. Each model reads some of them.
struct ModelOptions {
  std::size_t layers = 4;             ///< gpt, bert.
  std::size_t width = 128;            ///< gpt, texts, ratings: elements per vector.
  std::size_t heads = 4;              ///< gpt, bert.
  std::string positions = "learned";  ///< gpt: "learned" or "rotary"; see Gpt.
  bool tied = true;                   ///< gpt: the output layer shares the embedding's table.
  std::size_t hidden = 128;           ///< Dense layers of image models.
  float dropout = 0.0f;               ///< gpt, text classifiers: dropped share; see Dropout.
  bool row_gradients = true;          ///< Embedding tables have sparse gradients: rows.
  bool sync_batch_norm = false;       ///< Batch norm statistics cover all ranks' samples.
};

/// An option needs only a field above and its row here.
inline std::vector<ConfigOption> model_options(ModelOptions& c) {
  return {
      {"--layers", &c.layers, "gpt, bert: number of transformer blocks", kAtLeastOne},
      {"--width", &c.width,
       "gpt, bert: elements per position, a multiple of --heads; models of texts and ratings: "
       "elements of the vector of a word, user or item; lstm: of its states, too",
       kAtLeastOne},
      {"--heads", &c.heads, "gpt, bert: number of attention heads", kAtLeastOne},
      {"--positions", &c.positions,
       "gpt: learned: a vector of each position is added; rotary: queries and keys turn by angles "
       "that follow from it",
       Choices{"learned", "rotary"}, kNotOnGpus},
      {"--tied", &c.tied,
       "gpt: on: the output layer multiplies by the table of the embedding; off: by one of its own",
       kAny, kNotOnGpus},
      {"--hidden", &c.hidden, "image models: width of hidden dense layers", kAtLeastOne},
      {"--dropout", &c.dropout,
       "Share of elements that training drops at random; gpt: of embeddings, attention weights and "
       "what each block adds; models of texts: before the output layer, and of bert before each "
       "sum",
       kShareBelowOne, kNotOnGpus},
      {"--row-gradients", &c.row_gradients,
       "on: gradients of tables of words, users and items are the rows that a step used, and only "
       "these are sent and updated"},
      {"--sync-batch-norm", &c.sync_batch_norm,
       "on: batch norm takes its statistics over the samples of all ranks (resnet)"},
  };
}

}  // namespace kolo::trainer
