#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "trainer/text/byte_pair_encoding.h"
#include "trainer/text/piece_splitter.h"

namespace kolo::trainer {

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
