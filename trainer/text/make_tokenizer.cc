#include "trainer/text/make_tokenizer.h"

#include "trainer/text/byte_pair_encoding.h"
#include "trainer/text/byte_tokenizer.h"

namespace kolo::trainer {

std::shared_ptr<const Tokenizer> make_tokenizer(const TextFiles& files) {
  if (files.find(ByteTokenizer::kFile) != nullptr) return std::make_shared<ByteTokenizer>();
  for (const char* name : {BytePairEncoding::kVocabulary, BytePairEncoding::kMerges}) {
    if (files.find(name) != nullptr) {
      return std::make_shared<BytePairEncoding>(BytePairEncoding::from_files(files));
    }
  }
  return nullptr;
}

}  // namespace kolo::trainer
