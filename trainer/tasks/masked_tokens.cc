// Words that are hidden in a text.
//
// Steps and ranks differ in how many they hide, and a rank knows its own number only. So a word has
// the weight that follows from the mean over the training data: N ranks take the steps of one rank
// with their samples, without a message, and the reported loss is the plain mean.

#include <memory>
#include <utility>

#include "trainer/config.h"
#include "trainer/config_error.h"
#include "trainer/data/data_error.h"
#include "trainer/tasks/task.h"
#include "trainer/text/masked_texts.h"
#include "trainer/text/text_vocabulary.h"

namespace kolo::trainer {

TaskEntry masked_tokens() {
  return {.name = "masked-tokens",
          .help = "the words or other tokens that are hidden in a text",
          .make =
              [](const Config& config, DataSplit data) {
                if (!config.text_marks) {
                  throw_config_error("--task masked-tokens: needs --text-marks on");
                }
                if (data.vocabulary == nullptr) {
                  throw_wrong_samples(config, "texts of words or byte pairs");
                }
                const TextVocabulary& vocabulary = *data.vocabulary;
                if (vocabulary.tokens().size() == 0) {
                  throw_data_error(config.data, "there are no words that can be told apart");
                }
                auto train =
                    std::make_unique<MaskedTexts>(std::move(data.train), vocabulary, config.seed);
                const double mean_chosen = train->mean_chosen();
                const std::size_t rows = train->format().targets[0].elements();
                data.train = std::move(train);
                data.held_out = std::make_unique<MaskedTexts>(std::move(data.held_out), vocabulary,
                                                              config.seed);
                Task task = classification_task(config, std::move(data), rows, "hidden words");
                task.mean_targets = mean_chosen;
                return task;
              },
          .also_reads_data_of = {"text-classification", "language-model"},
          .reads = {"--label-smoothing"}};
}

}  // namespace kolo::trainer
