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

/// Splits texts into pieces as GPT-2 does before it merges bytes. A piece is a word, a number or a
/// run of other characters, each with the space before it, or a run of white space. No token spans
/// two pieces.
///
/// Unicode defines letters, numbers and white space. Runs of bytes that are not UTF-8 are separate
/// pieces. The concatenation of all pieces is the text.
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

/// Returns the first position at or after `from` at which the text can be divided without changing
/// its pieces, or the end of the text if there is none.
std::size_t next_cut(std::string_view text, std::size_t from);

/// Byte-pair encoding: tokens are formed from bytes by merging adjacent pairs. Frequent words
/// become one token, and every text can be encoded.
///
/// A text is split into pieces. In each piece, the adjacent pair that comes first in the list of
/// merges becomes one token, leftmost pair first, until no pair is in the list.
///
/// Cost:   O(n log n) for a piece of n bytes. Tokens of a repeated piece are copied.
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

  /// `tokens` are the bytes of each token, all different; `merges` are in order of priority. A
  /// token that is neither a single byte nor made by a merge never occurs in an encoded text.
  /// Before: each single byte is a token; each merge joins two tokens to a token.
  BytePairEncoding(std::vector<std::string> tokens, std::vector<Merge> merges);

  /// Makes an encoding from the files vocab.json and merges.txt in GPT-2's layout.
  /// Errors: KoloError(kData) naming file and, if known, offset or line, if a file is missing or
  ///         malformed, a byte has no token, or a merge has unknown tokens.
  static BytePairEncoding from_files(const TextFiles& files);

  std::size_t size() const override { return tokens_.size(); }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string_view bytes_of(std::int32_t token) const override;
  std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }
  TextFiles files() const override;

  const std::vector<Merge>& merges() const { return merges_; }

 private:
  struct Place {
    std::uint32_t rank;  // index in the list of merges
    std::int32_t joined;
  };

  const Place* find(std::int32_t left, std::int32_t right) const;
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& tokens) const;

  std::vector<std::string> tokens_;
  std::vector<Merge> merges_;
  std::array<std::int32_t, 256> byte_tokens_;
  std::unordered_map<std::uint64_t, Place> places_;  // merges by both tokens of a pair
  std::optional<std::int32_t> end_of_text_;
  PieceSplitter splitter_;
};

/// Counts how often each piece occurs in texts.
///
/// Threads: one.
class PieceCounts {
 public:
  using Counts = std::unordered_map<std::string, std::int64_t>;

  /// Counts the pieces of `text`. Cost: memory for each new piece.
  void add(std::string_view text);
  const Counts& counts() const { return counts_; }

 private:
  PieceSplitter splitter_;
  Counts counts_;
};

/// Learns a vocabulary of at most `size` tokens: the bytes in GPT-2's order, a token for each
/// merge, and the end-of-text token. Each merge joins the most frequent adjacent pair; of equally
/// frequent pairs, the one with the lower left token, then with the lower right token. Learning
/// ends early if no pair occurs twice.
///
/// The vocabulary depends only on the counts. Before: `size` is at least kFewestTokens.
/// Cost: proportional to the adjacent pairs of all distinct pieces plus the changes of each merge.
BytePairEncoding learn_byte_pairs(const PieceCounts& pieces, std::size_t size);

/// Smallest size of a vocabulary: 256 bytes and the end-of-text token.
inline constexpr std::size_t kFewestTokens = 257;

}  // namespace kolo::trainer
