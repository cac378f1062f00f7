#include "trainer/text/text_vocabulary.h"

namespace kolo::trainer {

SampleFormat text_format(const TextVocabulary& vocabulary, std::size_t max_length) {
  return {.inputs = {{.name = "tokens",
                      .dtype = DType::kInt32,
                      .shape = {max_length},
                      .values = vocabulary.size()},
                     {.name = "length", .dtype = DType::kInt32, .values = max_length + 1}},
          .targets = {}};
}

}  // namespace kolo::trainer
