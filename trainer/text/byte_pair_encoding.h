#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/text/piece_splitter.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

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

}  // namespace kolo::trainer
