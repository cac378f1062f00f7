// Texts that are tokens already: folders of `kolo-train tokenize`, and pairs of train.bin and
// val.bin as nanoGPT and llm.c write them.

#include <cstring>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "trainer/config.h"
#include "trainer/data/data_error.h"
#include "trainer/data/dataset_entry.h"
#include "trainer/data/mapped_file.h"
#include "trainer/text/make_tokenizer.h"
#include "trainer/text/token_vocabulary.h"
#include "trainer/tokens/marked_windows.h"
#include "trainer/tokens/token_dataset.h"
#include "trainer/tokens/token_folder.h"

namespace kolo::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRawTrain = "train.bin";
constexpr const char* kRawHeldOut = "val.bin";

bool has_file(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored);
}

TokenArray map_shard(const fs::path& folder, const TokenFolder::Shard& shard, std::size_t width) {
  const fs::path path = folder / shard.file;
  const auto file = std::make_shared<const MappedFile>(path);
  const std::size_t bytes = file->bytes().size();
  if (bytes / width != shard.tokens || bytes % width != 0) {
    throw_data_error(path, bytes,
                     fmt::format("the file ends here, and {} has {} tokens of {} bytes for it",
                                 TokenFolder::kFileName, shard.tokens, width));
  }
  return {.bytes = std::as_bytes(file->bytes()), .width = width, .owner = file, .file = path};
}

/// Tokens in 16 bits, which come after a header of 256 integers if the first one is llm.c's number.
/// In a file without a header that number would be two tokens, of which the first has no meaning in
/// GPT-2's vocabulary.
TokenArray map_raw(const fs::path& path) {
  constexpr std::uint32_t kMagic = 20'240'520;
  constexpr std::size_t kHeaderBytes = 1024;
  const auto file = std::make_shared<const MappedFile>(path);
  const auto bytes = std::as_bytes(file->bytes());
  std::uint32_t first = 0;
  if (bytes.size() >= kHeaderBytes) std::memcpy(&first, bytes.data(), sizeof first);
  const std::size_t offset = first == kMagic ? kHeaderBytes : 0;
  if (bytes.size() % 2 != 0) {
    throw_data_error(path, bytes.size() - 1, "the file ends within a token of 16 bits");
  }
  return {
      .bytes = bytes.subspan(offset), .width = 2, .owner = file, .file = path, .offset = offset};
}

/// The tokenizer in the folder, or else that of the job, which has to be the same.
std::shared_ptr<const Tokenizer> find_tokenizer(const Config& config) {
  const TextFiles in_folder = read_text_files(config.data);
  auto tokenizer = make_tokenizer(in_folder);
  if (tokenizer == nullptr) return make_tokenizer(config.text_files);
  const auto other = make_tokenizer(config.text_files);
  if (other != nullptr && other->files().texts != tokenizer->files().texts) {
    throw_data_error(config.data,
                     fmt::format("its tokens were made with another tokenizer than that of {}",
                                 config.text_files.origin.string()));
  }
  return tokenizer;
}

/// Windows of --context tokens, or where texts have marks, texts of --max-length.
std::unique_ptr<Dataset> make_windows(const Config& config, std::vector<TokenArray> arrays,
                                      const Tokenizer& tokenizer, const TextVocabulary* texts,
                                      const char* part) {
  const std::size_t length = texts == nullptr ? config.context : config.max_length - 1;
  auto windows = std::make_unique<TokenDataset>(std::move(arrays), tokenizer.size(), length);
  if (windows->size() == 0) {
    throw_data_error(
        config.data,
        fmt::format("no file of its {} tokens holds a context of {} and one more", part, length));
  }
  if (texts == nullptr) return windows;
  return std::make_unique<MarkedWindows>(std::move(windows), *texts);
}

DataSplit load_tokens(const Config& config) {
  const fs::path& folder = config.data;
  const bool is_raw = !has_file(folder / TokenFolder::kFileName);
  const auto tokenizer = find_tokenizer(config);
  if (tokenizer == nullptr) {
    throw_data_error(folder,
                     "there is no vocab.json, without which nothing says how many tokens there "
                     "are: put the tokenizer's files here, or name their folder by --tokenizer");
  }
  std::vector<TokenArray> train;
  std::vector<TokenArray> held_out;
  if (is_raw) {
    train.push_back(map_raw(folder / kRawTrain));
    held_out.push_back(map_raw(folder / kRawHeldOut));
  } else {
    const TokenFolder known = read_token_folder(folder);
    for (const std::string& name : known.tokenizer) {
      if (!has_file(folder / name)) throw_data_error(folder / name, "no such file");
    }
    if (known.vocabulary != tokenizer->size()) {
      throw_data_error(folder / TokenFolder::kFileName,
                       fmt::format("a vocabulary of {}, and the tokenizer has {}", known.vocabulary,
                                   tokenizer->size()));
    }
    for (const auto& shard : known.train) train.push_back(map_shard(folder, shard, known.width));
    for (const auto& shard : known.held_out) {
      held_out.push_back(map_shard(folder, shard, known.width));
    }
  }
  std::shared_ptr<const TextVocabulary> texts;
  if (config.text_marks) {
    texts = std::make_shared<const TokenVocabulary>(tokenizer,
                                                    TokenVocabulary::Options{.has_marks = true});
  }
  return {
      .train = make_windows(config, std::move(train), *tokenizer, texts.get(), "training"),
      .held_out = make_windows(config, std::move(held_out), *tokenizer, texts.get(), "held-out"),
      .vocabulary = texts,
      .tokenizer = tokenizer,
      .text_files = tokenizer->files()};
}

}  // namespace

DatasetEntry tokens_entry() {
  return {.name = "tokens",
          .task = "language-model",
          .help =
              "a folder that kolo-train tokenize made, or one with train.bin and val.bin of "
              "uint16, beside vocab.json and merges.txt",
          .accepts =
              [](const fs::path& path) {
                return has_file(path / TokenFolder::kFileName) ||
                       (has_file(path / kRawTrain) && has_file(path / kRawHeldOut));
              },
          .load = load_tokens,
          .reads = {"--context", "--max-length", "--text-marks"}};
}

}  // namespace kolo::trainer
