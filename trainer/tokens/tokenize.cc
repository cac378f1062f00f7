#include "trainer/tokens/tokenize.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "runtime/tools/command_line.h"
#include "trainer/data/files.h"
#include "trainer/errors.h"
#include "trainer/text/byte_pair_encoding.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {
namespace {

template <typename T>
std::vector<std::byte> narrow_tokens(std::span<const std::int32_t> tokens) {
  std::vector<std::byte> bytes(tokens.size() * sizeof(T));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<T>(tokens[i]);
    std::memcpy(bytes.data() + i * sizeof token, &token, sizeof token);
  }
  return bytes;
}

namespace fs = std::filesystem;
using Note = std::function<void(const std::string&)>;

constexpr std::size_t kMegabyte = 1'000'000;

/// The concatenated files of a text, read in parts.
class Documents {
 public:
  explicit Documents(const fs::path& data) : files_(corpus_files(data)) {
    for (const fs::path& file : files_) size_ += MappedFile(file).bytes().size();
    if (held_out_begin(size_) == size_) {
      throw_data_error(data, size_, "the text is too short: its last tenth is held out");
    }
  }

  std::size_t size() const { return size_; }

  /// Calls `take(part, is_end)` for the bytes [begin, end) of the whole text, in parts of about a
  /// megabyte that are cut between pieces. `is_end` says whether the part ends a file other than
  /// the last.
  template <typename Take>
  void for_each_part(std::size_t begin, std::size_t end, const Take& take) const {
    std::size_t file_begin = 0;
    for (std::size_t i = 0; i < files_.size() && file_begin < end; ++i) {
      const MappedFile file(files_[i]);
      const std::string_view whole(reinterpret_cast<const char*>(file.bytes().data()),
                                   file.bytes().size());
      const std::size_t from =
          std::clamp(begin, file_begin, file_begin + whole.size()) - file_begin;
      const std::size_t to = std::clamp(end, file_begin, file_begin + whole.size()) - file_begin;
      const std::string_view text = whole.substr(from, to - from);
      const bool has_end = file_begin + whole.size() <= end && i + 1 < files_.size();
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t next = next_cut(text, at + kMegabyte);
        take(text.substr(at, next - at), has_end && next == text.size());
        at = next;
      }
      file_begin += whole.size();
    }
  }

 private:
  std::vector<fs::path> files_;
  std::size_t size_ = 0;
};

/// Reports progress about ten times per text.
class TextProgress {
 public:
  TextProgress(std::string verb, std::size_t size, const Note& note)
      : verb_(std::move(verb)), size_(size), note_(note) {}

  void add(std::size_t bytes) {
    done_ += bytes;
    if (done_ * 10 / size_ == told_ && done_ < size_) return;
    told_ = done_ * 10 / size_;
    const double megabytes = static_cast<double>(size_) / static_cast<double>(kMegabyte);
    note_(fmt::format("{}: {} % of {:.1f} MB", verb_, done_ * 100 / size_, megabytes));
  }

 private:
  std::string verb_;
  std::size_t size_;
  std::size_t done_ = 0;
  std::size_t told_ = 0;
  const Note& note_;
};

std::shared_ptr<const Tokenizer> find_or_learn(const TokenizeOptions& options,
                                               const Documents& documents, const Note& note) {
  if (!options.tokenizer.empty()) {
    auto tokenizer = make_tokenizer(read_text_files(options.tokenizer));
    if (tokenizer != nullptr) return tokenizer;
    throw_data_error(options.tokenizer, "there is no vocab.json with merges.txt");
  }
  const std::size_t end = held_out_begin(documents.size());
  TextProgress progress("counting", end, note);
  PieceCounts pieces;
  documents.for_each_part(0, end, [&](std::string_view text, bool) {
    pieces.add(text);
    progress.add(text.size());
  });
  auto learnt = std::make_shared<BytePairEncoding>(learn_byte_pairs(pieces, options.vocabulary));
  note(fmt::format("learnt {} tokens from {} different pieces", learnt->size(),
                   pieces.counts().size()));
  return learnt;
}

void write_durably(const fs::path& file, const std::string& text) {
  DurableFile out(file);
  out.write(std::as_bytes(std::span(text)));
  out.finish();
}

void print_note(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

}  // namespace

TokenWriter::TokenWriter(Options options) : options_(std::move(options)) {}

void TokenWriter::write(std::span<const std::int32_t> tokens) {
  while (!tokens.empty()) {
    if (!file_) {
      shards_.push_back({.file = fmt::format("{}-{:05}.bin", options_.part, shards_.size())});
      file_.emplace(options_.folder / shards_.back().file);
    }
    const auto room = options_.shard_tokens - shards_.back().tokens;
    const auto now = tokens.first(std::min<std::size_t>(tokens.size(), room));
    file_->write(options_.width == 2 ? narrow_tokens<std::uint16_t>(now)
                                     : narrow_tokens<std::uint32_t>(now));
    shards_.back().tokens += now.size();
    tokens_ += now.size();
    tokens = tokens.subspan(now.size());
    if (shards_.back().tokens == options_.shard_tokens) finish_shard();
  }
}

std::vector<TokenFolder::Shard> TokenWriter::finish() {
  if (file_) finish_shard();
  return shards_;
}

void TokenWriter::finish_shard() {
  shards_.back().xxh3 = file_->finish().xxh3;
  file_.reset();
}

void tokenize(const TokenizeOptions& options, const Note& note) {
  std::error_code error;
  if (fs::exists(options.out, error)) {
    throw_io_error("make", options.out, "it is there already: name another folder, or remove it");
  }
  const Documents documents(options.data);
  const std::shared_ptr<const Tokenizer> tokenizer = find_or_learn(options, documents, note);

  // A name that ends with a slash has an empty last component.
  const fs::path out = options.out.has_filename() ? options.out : options.out.parent_path();
  const fs::path partial = fs::path(out) += ".partial";
  fs::remove_all(partial, error);
  fs::create_directories(partial, error);
  if (error) throw_io_error("make", partial, error.message());
  TokenFolder folder{.width = token_width(tokenizer->size()), .vocabulary = tokenizer->size()};
  TextProgress progress("tokenizing", documents.size(), note);
  const auto write_part = [&](const char* part, std::size_t begin, std::size_t end) {
    TokenWriter writer({.folder = partial,
                        .part = part,
                        .width = folder.width,
                        .shard_tokens = options.shard_tokens});
    documents.for_each_part(begin, end, [&](std::string_view text, bool is_end_of_file) {
      std::vector<std::int32_t> tokens = tokenizer->encode(text);
      if (is_end_of_file && tokenizer->end_of_text()) tokens.push_back(*tokenizer->end_of_text());
      writer.write(tokens);
      progress.add(text.size());
    });
    std::vector<TokenFolder::Shard> shards = writer.finish();
    note(fmt::format("{}: {} tokens in {} files, {:.3f} bytes per token", part, writer.tokens(),
                     shards.size(),
                     static_cast<double>(end - begin) / static_cast<double>(writer.tokens())));
    return shards;
  };
  const std::size_t boundary = held_out_begin(documents.size());
  folder.train = write_part("train", 0, boundary);
  folder.held_out = write_part("held-out", boundary, documents.size());
  for (const auto& [name, text] : tokenizer->files().texts) {
    write_durably(partial / name, text);
    folder.tokenizer.push_back(name);
  }
  write_durably(partial / TokenFolder::kFileName, to_json(folder));
  sync_folder(partial);
  rename_durably(partial, out);
}

void verify_tokens(const fs::path& folder, const Note& note) {
  const TokenFolder known = read_token_folder(folder);
  for (const auto* shards : {&known.train, &known.held_out}) {
    for (const TokenFolder::Shard& shard : *shards) {
      const fs::path path = folder / shard.file;
      const MappedFile file(path);
      const FileSum sum = sum_of(std::as_bytes(file.bytes()));
      if (sum.bytes != shard.tokens * known.width) {
        throw_data_error(path, sum.bytes,
                         fmt::format("the file ends here, and {} has {} tokens of {} bytes for it",
                                     TokenFolder::kFileName, shard.tokens, known.width));
      }
      if (sum.xxh3 != shard.xxh3) {
        throw_data_error(path, fmt::format("its XXH3 sum is {:016x}, and {} has {:016x}", sum.xxh3,
                                           TokenFolder::kFileName, shard.xxh3));
      }
      note(fmt::format("{}: {} tokens, as they were written", shard.file, shard.tokens));
    }
  }
}

int run_tokenize_command(int argc, const char* const* argv) {
  CLI::App app(
      "Writes a text as tokens into a folder that --data of kolo-train names, or compares such a "
      "folder with the sums of its files.",
      "kolo-train tokenize");
  TokenizeOptions options;
  std::filesystem::path checked;
  app.option_defaults()->always_capture_default();
  auto* data = app.add_option("--data", options.data,
                              "The text: a file, or a directory of *.md *.txt *.h *.cc *.py *.sh, "
                              "with an end of text between files; the last tenth is held out");
  auto* out = app.add_option("--out", options.out, "The folder to make");
  data->needs(out);
  out->needs(data);
  auto* tokenizer = app.add_option("--tokenizer", options.tokenizer,
                                   "Folder with vocab.json and merges.txt, as GPT-2's; byte pairs "
                                   "are learnt from the text unless given");
  app.add_option("--vocabulary", options.vocabulary,
                 "Tokens to learn at most, with the 256 bytes and the end of a text")
      ->check(CLI::Range(kFewestTokens, std::size_t{1} << 24))
      ->excludes(tokenizer);
  app.add_option("--shard-tokens", options.shard_tokens, "Tokens of a file at most")
      ->check(CLI::PositiveNumber);
  app.add_option("--check", checked, "A folder of tokens to compare with the sums of its files")
      ->excludes(data);
  if (!parse_arguments(app, argc, argv)) return 0;
  if (data->count() == 0 && checked.empty()) {
    throw UsageError("--data or --check is required (kolo-train tokenize --help explains)");
  }
  if (checked.empty()) {
    tokenize(options, print_note);
    print_note(fmt::format("{} is complete", options.out.string()));
  } else {
    verify_tokens(checked, print_note);
  }
  return 0;
}

}  // namespace kolo::trainer
