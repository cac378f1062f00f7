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

/// Cuts texts into the pieces that GPT-2 cuts them into before it merges bytes: a word with the
/// space before it, digits, other characters, white space. No token reaches over two pieces.
///
/// Letters, numbers and white space are those of Unicode. Bytes that are not UTF-8 are pieces of
/// their own. The pieces, one after the other, are the text.
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

/// The first place at or after `from` where a text can be cut so that its two parts have the pieces
/// that the whole has; the end of the text if there is none.
std::size_t next_cut(std::string_view text, std::size_t from);

/// Tokens that began as bytes and grew by merging pairs of neighbours: frequent words are one
/// token, and every text can be written.
///
/// A text is cut into pieces. In each, the pair of neighbours with the lowest place in the list of
/// merges becomes one token, the leftmost first, until no pair is in the list.
///
/// Cost:   n log n for a piece of n bytes; pieces that come again are copied.
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

  /// `tokens` are the bytes of each token, all different, and `merges` in their order. Those that
  /// no merge makes and that are no single byte are never of a text.
  /// Before: each single byte is a token; what a merge joins are tokens, and so is the result.
  BytePairEncoding(std::vector<std::string> tokens, std::vector<Merge> merges);

  /// Reads vocab.json and merges.txt in GPT-2's layout.
  /// Errors: KoloError(kData) naming the file that is missing, and offset or line: malformed, a
  ///         byte without a token, or a merge of what is not in the vocabulary.
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

/// The pieces of texts, each with the number of times that it occurs.
///
/// Threads: one.
class PieceCounts {
 public:
  using Counts = std::unordered_map<std::string, std::int64_t>;

  /// Cost: memory for each piece that is new.
  void add(std::string_view text);
  const Counts& counts() const { return counts_; }

 private:
  PieceSplitter splitter_;
  Counts counts_;
};

/// Learns a vocabulary of at most `size` tokens: the bytes in GPT-2's order, a token for each merge
/// and the end of a text. Each merge joins the pair of neighbours that occurs most often; between
/// pairs that occur equally often it is the one whose left token has the lower number, then whose
/// right one has. Learning ends early when no pair occurs twice.
///
/// The vocabulary depends on the counts alone. Before: `size` is at least `kFewestTokens`.
/// Cost: about the number of neighbours in all different pieces, and the changes of each merge.
BytePairEncoding learn_byte_pairs(const PieceCounts& pieces, std::size_t size);

/// The bytes and the end of a text.
inline constexpr std::size_t kFewestTokens = 257;

}  // namespace kolo::trainer
