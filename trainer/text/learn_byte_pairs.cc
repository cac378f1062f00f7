#include "trainer/text/learn_byte_pairs.h"

#include <algorithm>
#include <array>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "trainer/text/byte_alphabet.h"

namespace kolo::trainer {
namespace {

struct PairOfTokens {
  std::int32_t left, right;
  friend bool operator==(const PairOfTokens&, const PairOfTokens&) = default;
};

struct HashOfPair {
  std::size_t operator()(const PairOfTokens& pair) const {
    return std::hash<std::uint64_t>{}(static_cast<std::uint64_t>(pair.left) << 32 |
                                      static_cast<std::uint64_t>(pair.right));
  }
};

/// A pair that may be the next to merge: its count has not grown since, but may have shrunk.
struct MergeCandidate {
  std::int64_t count;
  PairOfTokens pair;
  /// Whether the other comes first.
  bool operator<(const MergeCandidate& other) const {
    return std::tie(count, other.pair.left, other.pair.right) <
           std::tie(other.count, pair.left, pair.right);
  }
};

class PairMerger {
 public:
  PairMerger(const PieceCounts& pieces, const std::array<std::int32_t, 256>& byte_tokens) {
    for (const auto& [piece, count] : pieces.counts()) {
      Word word{.tokens = {}, .count = count};
      for (const char c : piece) {
        word.tokens.push_back(byte_tokens[static_cast<unsigned char>(c)]);
      }
      words_.push_back(std::move(word));
    }
    for (std::size_t w = 0; w < words_.size(); ++w) {
      const std::vector<std::int32_t>& tokens = words_[w].tokens;
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        grow({tokens[i], tokens[i + 1]}, w);
      }
    }
    consider_grown();
  }

  /// The pair that occurs most often; empty if none occurs twice.
  std::optional<PairOfTokens> most_frequent() {
    constexpr std::int64_t kFewest = 2;
    while (!candidates_.empty()) {
      const MergeCandidate top = candidates_.top();
      candidates_.pop();
      const auto known = pairs_.find(top.pair);
      const std::int64_t count = known == pairs_.end() ? 0 : known->second.count;
      if (count == top.count) return top.pair;
      if (count >= kFewest) candidates_.push({.count = count, .pair = top.pair});
    }
    return std::nullopt;
  }

  void merge(PairOfTokens pair, std::int32_t joined) {
    std::vector<std::size_t> words = std::move(pairs_.at(pair).words);
    std::ranges::sort(words);
    words.erase(std::unique(words.begin(), words.end()), words.end());
    for (const std::size_t word : words) merge_in(word, pair, joined);
    pairs_.erase(pair);
    consider_grown();
  }

 private:
  struct Word {
    std::vector<std::int32_t> tokens;
    std::int64_t count;
  };
  struct Pair {
    std::int64_t count = 0;
    std::vector<std::size_t> words;  // that hold it or did
  };

  void grow(PairOfTokens pair, std::size_t word) {
    Pair& known = pairs_[pair];
    known.count += words_[word].count;
    if (known.words.empty() || known.words.back() != word) known.words.push_back(word);
    grown_.push_back(pair);
  }

  void shrink(PairOfTokens pair, std::size_t word) { pairs_[pair].count -= words_[word].count; }

  // Neighbours change with each occurrence, from left to right: in x a b y, the pairs (x a) and
  // (b y) become (x ab) and (ab y).
  void merge_in(std::size_t word, PairOfTokens pair, std::int32_t joined) {
    std::vector<std::int32_t>& tokens = words_[word].tokens;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool is_pair =
          tokens[i] == pair.left && i + 1 < tokens.size() && tokens[i + 1] == pair.right;
      if (!is_pair) {
        tokens[kept++] = tokens[i];
        continue;
      }
      if (kept > 0) {
        shrink({tokens[kept - 1], pair.left}, word);
        grow({tokens[kept - 1], joined}, word);
      }
      if (i + 2 < tokens.size()) {
        shrink({pair.right, tokens[i + 2]}, word);
        grow({joined, tokens[i + 2]}, word);
      }
      tokens[kept++] = joined;
      ++i;
    }
    tokens.resize(kept);
  }

  void consider_grown() {
    const auto order = [](const PairOfTokens& a, const PairOfTokens& b) {
      return std::tie(a.left, a.right) < std::tie(b.left, b.right);
    };
    std::ranges::sort(grown_, order);
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const PairOfTokens& pair : grown_) {
      const auto known = pairs_.find(pair);
      if (known != pairs_.end() && known->second.count > 1) {
        candidates_.push({.count = known->second.count, .pair = pair});
      }
    }
    grown_.clear();
  }

  std::vector<Word> words_;
  std::unordered_map<PairOfTokens, Pair, HashOfPair> pairs_;
  std::vector<PairOfTokens> grown_;
  std::priority_queue<MergeCandidate> candidates_;
};

}  // namespace

void PieceCounts::add(std::string_view text) {
  splitter_.split(text, [this](std::string_view piece) { ++counts_[std::string(piece)]; });
}

BytePairEncoding learn_byte_pairs(const PieceCounts& pieces, std::size_t size) {
  check(size >= kFewestTokens, "a vocabulary of byte pairs has room for all bytes");
  std::vector<std::string> tokens;
  std::array<std::int32_t, 256> byte_tokens{};
  std::unordered_map<std::string, std::int32_t> ids;
  for (const std::uint8_t byte : bytes_in_order()) {
    byte_tokens[byte] = static_cast<std::int32_t>(tokens.size());
    tokens.emplace_back(1, static_cast<char>(byte));
    ids.emplace(tokens.back(), byte_tokens[byte]);
  }
  PairMerger merger(pieces, byte_tokens);
  std::vector<BytePairEncoding::Merge> merges;
  while (tokens.size() + 1 < size) {
    const auto pair = merger.most_frequent();
    if (!pair) break;
    std::string bytes = tokens[static_cast<std::size_t>(pair->left)] +
                        tokens[static_cast<std::size_t>(pair->right)];
    // Other merges may have made the same bytes.
    const auto [place, is_new] = ids.emplace(bytes, static_cast<std::int32_t>(tokens.size()));
    if (is_new) tokens.push_back(std::move(bytes));
    merges.push_back({.left = pair->left, .right = pair->right, .joined = place->second});
    merger.merge(*pair, place->second);
  }
  tokens.emplace_back(BytePairEncoding::kEndOfText);  // It has three pieces, so no merge makes it.
  return {std::move(tokens), std::move(merges)};
}

}  // namespace kolo::trainer
