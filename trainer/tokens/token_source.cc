// Data sets of tokenized texts: folders that `kolo-train tokenize` wrote, and pairs of train.bin
// and val.bin as nanoGPT and llm.c write them; also texts that are tokenized when they are loaded.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "trainer/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/files.h"
#include "trainer/errors.h"
#include "trainer/text/tokenizer.h"
#include "trainer/text/vocabulary.h"
#include "trainer/tokens/tokens.h"

namespace kolo::trainer {
namespace {

/// A data set of windows of tokens as texts, each of which begins with the [CLS] mark.
///
/// Format: the inputs "tokens" and "length" of LabelledTextDataset; every text is one token longer
///         than a window; no target.
class MarkedWindows final : public Dataset {
 public:
  /// Before: `vocabulary` has marks, and has the tokens of `windows`.
  MarkedWindows(std::unique_ptr<TokenDataset> windows, const TextVocabulary& vocabulary)
      : windows_(std::move(windows)),
        mark_(vocabulary.marks().value().text),
        format_(text_format(vocabulary, windows_->format().inputs[0].elements() + 1)) {}

  std::size_t size() const override { return windows_->size(); }
  const SampleFormat& format() const override { return format_; }
  /// Errors: those of TokenDataset.
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot>) const override {
    const std::span<std::int32_t> tokens = inputs[0].as<std::int32_t>();
    tokens[0] = mark_;
    std::vector<std::int32_t> next(tokens.size() - 1);
    const TensorSlot window[] = {tokens.subspan(1)}, left_out[] = {next};
    windows_->copy(index, epoch, window, left_out);
    inputs[1].as<std::int32_t>()[0] = static_cast<std::int32_t>(tokens.size());
  }

 private:
  std::unique_ptr<TokenDataset> windows_;
  std::int32_t mark_;
  SampleFormat format_;
};

namespace fs = std::filesystem;

constexpr const char* kRawTrain = "train.bin";
constexpr const char* kRawHeldOut = "val.bin";

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

/// Maps a file of 16-bit tokens. If its first integer is llm.c's magic number, the tokens follow a
/// header of 256 integers. Without a header, these bytes would be two tokens, the first of which is
/// not in GPT-2's vocabulary.
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

/// Returns the tokenizer in the folder config.data or, if there is none, that of the job. Errors:
/// KoloError(kData) if both exist and differ.
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

/// Makes windows of --context tokens or, if `texts` is not null, texts of --max-length.
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

/// The hash of `bytes`, after others of which `before` is the hash.
std::uint64_t hash_of(std::span<const std::byte> bytes, std::uint64_t before = 0) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), before);
}

/// As `hash_of`, of some of the bytes: a file of raw tokens may be larger than memory. Another text
/// differs in all places.
std::uint64_t hash_of_samples(std::span<const std::byte> bytes, std::uint64_t before) {
  constexpr std::size_t kSample = 4096, kSamples = 1024;
  const std::size_t distance = std::max(kSample, bytes.size() / kSamples);
  for (std::size_t at = 0; at < bytes.size(); at += distance) {
    before = hash_of(bytes.subspan(at, std::min(kSample, bytes.size() - at)), before);
  }
  return before;
}

DataSplit load_tokens(const Config& config) {
  const fs::path& folder = config.data;
  const bool is_raw = !is_there(folder / TokenFolder::kFileName);
  const auto tokenizer = find_tokenizer(config);
  if (tokenizer == nullptr) {
    throw_data_error(folder,
                     "there is no vocab.json, without which nothing says how many tokens there "
                     "are: put the tokenizer's files here, or name their folder by --tokenizer");
  }
  std::vector<TokenArray> train;
  std::vector<TokenArray> held_out;
  std::uint64_t hash = 0;
  if (is_raw) {
    train.push_back(map_raw(folder / kRawTrain));
    held_out.push_back(map_raw(folder / kRawHeldOut));
    hash = hash_of_samples(held_out[0].bytes, hash_of_samples(train[0].bytes, 0));
  } else {
    const TokenFolder known = read_token_folder(folder);
    for (const std::string& name : known.tokenizer) {
      if (!is_there(folder / name)) throw_data_error(folder / name, "no such file");
    }
    if (known.vocabulary != tokenizer->size()) {
      throw_data_error(folder / TokenFolder::kFileName,
                       fmt::format("a vocabulary of {}, and the tokenizer has {}", known.vocabulary,
                                   tokenizer->size()));
    }
    const MappedFile sums(folder / TokenFolder::kFileName);
    hash = hash_of(std::as_bytes(sums.bytes()));
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
      .text_hash = hash,
      .text_files = tokenizer->files()};
}

/// Tokenizes the bytes [begin, end) of a text; a byte tokenizer uses them in place.
TokenArray tokens_of(const Config& config, const std::shared_ptr<const Corpus>& corpus,
                     std::size_t begin, std::size_t end, const Tokenizer& tokenizer) {
  const auto bytes = std::as_bytes(corpus->bytes().subspan(begin, end - begin));
  if (dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr) {
    return {.bytes = bytes, .width = 1, .owner = corpus, .file = config.data, .offset = begin};
  }
  const auto tokens = std::make_shared<const std::vector<std::int32_t>>(
      tokenizer.encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  return {.bytes = std::as_bytes(std::span(*tokens)), .width = 4, .owner = tokens};
}

DataSplit load_text(const Config& config) {
  const auto corpus = std::make_shared<const Corpus>(config.data);
  std::shared_ptr<const Tokenizer> tokenizer = make_tokenizer(config.text_files);
  if (tokenizer == nullptr) tokenizer = std::make_shared<ByteTokenizer>();
  const std::size_t size = corpus->bytes().size();
  const std::size_t boundary = held_out_begin(size);
  const auto part = [&](std::size_t begin, std::size_t end) {
    auto dataset = std::make_unique<TokenDataset>(
        std::vector{tokens_of(config, corpus, begin, end, *tokenizer)}, tokenizer->size(),
        config.context);
    if (dataset->size() > 0) return dataset;
    throw_data_error(config.data, size,
                     fmt::format("the text is too short: its last tenth must hold a context of {} "
                                 "tokens and one more",
                                 config.context));
  };
  return {.train = part(0, boundary),
          .held_out = part(boundary, size),
          .tokenizer = tokenizer,
          .text_hash = hash_of(std::as_bytes(corpus->bytes())),
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
                return is_there(path / TokenFolder::kFileName) ||
                       (is_there(path / kRawTrain) && is_there(path / kRawHeldOut));
              },
          .load = load_tokens,
          .reads = {"--context", "--max-length", "--text-marks"}};
}

DatasetEntry text_entry() {
  return {.name = "text",
          .task = "language-model",
          .help =
              "a file, or a directory of *.md *.txt *.h *.cc *.py *.sh, whose tokens are bytes or "
              "those of --tokenizer; the last tenth is held out",
          .accepts = [](const auto&) { return true; },
          .load = load_text,
          .reads = {"--context"}};
}

}  // namespace kolo::trainer
