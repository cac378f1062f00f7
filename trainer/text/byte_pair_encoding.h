#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/text/tokenizer.h"

struct pcre2_real_code_8;

namespace kolo::trainer {

/// Splits texts into pieces as GPT-2 does before it merges bytes: a word with the preceding space,
/// digits, other characters, white space. No token spans two pieces.
///
/// Letters, numbers and white space are Unicode's. Bytes that are not UTF-8 are separate pieces.
/// The concatenated pieces are the text.
///
/// Threads: any. Source: https://github.com/openai/gpt-2, src/encoder.py.
class PieceSplitter {
 public:
  PieceSplitter();

  void split(std::string_view text, const std::function<void(std::string_view piece)>& take) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const noexcept;
  };

  std::unique_ptr<pcre2_real_code_8, FreeCode> pattern_;
};

/// The first position at or after `from` at which the text can be split without changing its
/// pieces; the end of the text if there is none.
std::size_t next_cut(std::string_view text, std::size_t from);

/// Tokens formed from bytes by merging adjacent pairs: frequent words are one token, and every text
/// can be encoded.
///
/// A text is split into pieces. In each piece, the adjacent pair that comes first in the list of
/// merges becomes one token, the leftmost pair first, until no pair is in the list.
///
/// Cost:   n log n for a piece of n bytes; repeated pieces are copied.
/// Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", ACL
///         2016; over bytes: Radford et al. (GPT-2), 2019.
class BytePairEncoding final : public Tokenizer {
 public:
  static constexpr const char* kVocabulary = "vocab.json";
  static constexpr const char* kMerges = "merges.txt";
  static constexpr const char* kEndOfText = "<|endoftext|>";

  struct Merge {
    std::int32_t left;
    std::int32_t right;
    std::int32_t joined;
  };

  /// `tokens` are the bytes of each token, all different, and `merges` are in order of priority.
  /// Tokens that are neither single bytes nor made by a merge never occur in a text.
  /// Before: each single byte is a token; each merge joins two tokens into a token.
  BytePairEncoding(std::vector<std::string> tokens, std::vector<Merge> merges);

  /// Reads vocab.json and merges.txt in GPT-2's layout.
  /// Errors: KoloError(kData) naming the missing file, or file and offset or line: malformed, a
  ///         byte without a token, or a merge whose tokens are not in the vocabulary.
  static BytePairEncoding from_files(const TextFiles& files);

  std::size_t size() const override { return tokens_.size(); }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string_view bytes_of(std::int32_t token) const override;
  std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }
  TextFiles files() const override;

  const std::vector<Merge>& merges() const { return merges_; }

 private:
  struct Place {
    std::uint32_t rank;  // in the list of merges
    std::int32_t joined;
  };

  const Place* find(std::int32_t left, std::int32_t right) const;
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& tokens) const;

  std::vector<std::string> tokens_;
  std::vector<Merge> merges_;
  std::array<std::int32_t, 256> byte_tokens_;
  std::unordered_map<std::uint64_t, Place> places_;  // by both tokens of a pair
  std::optional<std::int32_t> end_of_text_;
  PieceSplitter splitter_;
};

/// Counts the pieces of texts.
///
/// Threads: one.
class PieceCounts {
 public:
  using Counts = std::unordered_map<std::string, std::int64_t>;

  /// Cost: memory for each new piece.
  void add(std::string_view text);
  const Counts& counts() const { return counts_; }

 private:
  PieceSplitter splitter_;
  Counts counts_;
};

/// Learns a vocabulary of at most `size` tokens: the bytes in GPT-2's order, a token for each
/// merge, and the end of a text. Each merge joins the most frequent adjacent pair; on a tie, the
/// pair with the lower left token, then with the lower right token. Learning ends early when no
/// pair occurs twice.
///
/// The vocabulary depends only on the counts. Before: `size` is at least `kFewestTokens`.
/// Cost: about the number of adjacent pairs in all distinct pieces, plus the changes of each merge.
BytePairEncoding learn_byte_pairs(const PieceCounts& pieces, std::size_t size);

/// The bytes and the end of a text.
inline constexpr std::size_t kFewestTokens = 257;

}  // namespace kolo::trainer
