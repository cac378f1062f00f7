#include "trainer/text/byte_pair_encoding.h"

#include <algorithm>
#include <queue>
#include <sstream>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "trainer/errors.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {
namespace {

constexpr const char* kMergesVersion = "#version: 0.2";

using IdsByBytes = std::unordered_map<std::string, std::int32_t>;

IdsByBytes ids_by_bytes(const std::vector<std::string>& tokens) {
  IdsByBytes ids;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ids.emplace(tokens[i], static_cast<std::int32_t>(i));
  }
  return ids;
}

/// A pair of adjacent tokens. Pairs are ordered by left token, then by right token.
using Pair = std::uint64_t;

Pair pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<Pair>(left) << 32 | static_cast<Pair>(right);
}
std::int32_t left_of(Pair pair) { return static_cast<std::int32_t>(pair >> 32); }
std::int32_t right_of(Pair pair) { return static_cast<std::int32_t>(pair & 0xffffffffu); }

const std::string& text_of(const TextFiles& files, const char* name) {
  const std::string* text = files.find(name);
  if (text == nullptr) throw_data_error(files.path(name), "no such file");
  return *text;
}

std::vector<BytePairEncoding::Merge> parse_merges(const std::string& text, const IdsByBytes& ids,
                                                  const std::filesystem::path& file) {
  std::vector<BytePairEncoding::Merge> merges;
  std::istringstream in(text);
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    const auto left = from_visible(line.substr(0, space));
    const auto right =
        space == std::string::npos ? std::nullopt : from_visible(line.substr(space + 1));
    if (!left || !right || left->empty() || right->empty()) {
      throw_data_error(file, fmt::format("line {}: '{}' is not two tokens with a space between "
                                         "them",
                                         number, line));
    }
    std::array<std::int32_t, 3> found{};
    std::size_t next = 0;
    for (const std::string& token : {*left, *right, *left + *right}) {
      const auto id = ids.find(token);
      if (id == ids.end()) {
        throw_data_error(file, fmt::format("line {}: '{}' is not in {}", number, to_visible(token),
                                           BytePairEncoding::kVocabulary));
      }
      found[next++] = id->second;
    }
    merges.push_back({.left = found[0], .right = found[1], .joined = found[2]});
  }
  return merges;
}

/// A candidate for the next merge. The count of its pair may have shrunk since, but has not grown.
struct MergeCandidate {
  std::int64_t count;
  Pair pair;
  /// Whether `other` is to be merged before this candidate.
  bool operator<(const MergeCandidate& other) const {
    return std::tie(count, other.pair) < std::tie(other.count, pair);
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
        grow(pair_of(tokens[i], tokens[i + 1]), w);
      }
    }
    consider_grown();
  }

  /// Returns the most frequent pair, or empty if none occurs twice.
  std::optional<Pair> most_frequent() {
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

  void merge(Pair pair, std::int32_t joined) {
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
  struct Known {
    std::int64_t count = 0;
    std::vector<std::size_t> words;  // words that contain or contained the pair
  };

  void grow(Pair pair, std::size_t word) {
    Known& known = pairs_[pair];
    known.count += words_[word].count;
    if (known.words.empty() || known.words.back() != word) known.words.push_back(word);
    grown_.push_back(pair);
  }

  void shrink(Pair pair, std::size_t word) { pairs_[pair].count -= words_[word].count; }

  // Joins each occurrence of a pair in a word, from left to right. The pairs with its neighbours
  // change: in x a b y, (x a) and (b y) become (x ab) and (ab y).
  void merge_in(std::size_t word, Pair pair, std::int32_t joined) {
    std::vector<std::int32_t>& tokens = words_[word].tokens;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool is_pair = i + 1 < tokens.size() && pair_of(tokens[i], tokens[i + 1]) == pair;
      if (!is_pair) {
        tokens[kept++] = tokens[i];
        continue;
      }
      if (kept > 0) {
        shrink(pair_of(tokens[kept - 1], left_of(pair)), word);
        grow(pair_of(tokens[kept - 1], joined), word);
      }
      if (i + 2 < tokens.size()) {
        shrink(pair_of(right_of(pair), tokens[i + 2]), word);
        grow(pair_of(joined, tokens[i + 2]), word);
      }
      tokens[kept++] = joined;
      ++i;
    }
    tokens.resize(kept);
  }

  void consider_grown() {
    std::ranges::sort(grown_);
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const Pair pair : grown_) {
      const auto known = pairs_.find(pair);
      if (known != pairs_.end() && known->second.count > 1) {
        candidates_.push({.count = known->second.count, .pair = pair});
      }
    }
    grown_.clear();
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, Known> pairs_;
  std::vector<Pair> grown_;
  std::priority_queue<MergeCandidate> candidates_;
};

}  // namespace

BytePairEncoding::BytePairEncoding(std::vector<std::string> tokens, std::vector<Merge> merges)
    : tokens_(std::move(tokens)), merges_(std::move(merges)) {
  const IdsByBytes ids = ids_by_bytes(tokens_);
  for (std::size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    byte_tokens_[byte] = ids.at(std::string(1, static_cast<char>(byte)));
  }
  for (const Merge& merge : merges_) {
    // A pair that is listed twice keeps its first rank.
    places_.emplace(pair_of(merge.left, merge.right),
                    Place{static_cast<std::uint32_t>(places_.size()), merge.joined});
  }
  const auto end = ids.find(kEndOfText);
  if (end != ids.end()) end_of_text_ = end->second;
}

BytePairEncoding BytePairEncoding::from_files(const TextFiles& files) {
  const std::string& vocabulary = text_of(files, kVocabulary);
  std::vector<std::string> tokens = from_numbered_json(vocabulary, files.path(kVocabulary));
  const IdsByBytes ids = ids_by_bytes(tokens);
  if (ids.contains("")) throw_data_error(files.path(kVocabulary), "a token has no bytes");
  for (const std::uint8_t byte : bytes_in_order()) {
    const std::string token(1, static_cast<char>(byte));
    if (!ids.contains(token)) {
      throw_data_error(files.path(kVocabulary),
                       fmt::format("the byte {}, '{}', is missing", byte, to_visible(token)));
    }
  }
  std::vector<Merge> merges = parse_merges(text_of(files, kMerges), ids, files.path(kMerges));
  return {std::move(tokens), std::move(merges)};
}

std::string_view BytePairEncoding::bytes_of(std::int32_t token) const {
  return tokens_.at(static_cast<std::size_t>(token));
}

TextFiles BytePairEncoding::files() const {
  std::string merges = std::string(kMergesVersion) + "\n";
  for (const Merge& merge : merges_) {
    merges +=
        fmt::format("{} {}\n", to_visible(bytes_of(merge.left)), to_visible(bytes_of(merge.right)));
  }
  return {.texts = {{kVocabulary, to_numbered_json(tokens_)}, {kMerges, std::move(merges)}},
          .origin = {}};
}

std::vector<std::int32_t> BytePairEncoding::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  // Offset in `tokens` and number of tokens of each piece encoded so far.
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> known;
  splitter_.split(text, [&](std::string_view piece) {
    const std::size_t begin = tokens.size();
    const auto found = known.find(piece);
    if (found == known.end()) {
      encode_piece(piece, tokens);
      known.emplace(piece, std::pair(begin, tokens.size() - begin));
    } else {
      const auto [from, count] = found->second;
      for (std::size_t i = from; i < from + count; ++i) tokens.push_back(tokens[i]);
    }
  });
  return tokens;
}

const BytePairEncoding::Place* BytePairEncoding::find(std::int32_t left, std::int32_t right) const {
  const auto found = places_.find(pair_of(left, right));
  return found == places_.end() ? nullptr : &found->second;
}

// The tokens of a piece form a linked list by index. A pair is identified by the index of its left
// token, which the joined token keeps:
//
//     l o w e r     merges: (l o) (lo w)       0     3 4
//     0 1 2 3 4                         ->     low   e r
void BytePairEncoding::encode_piece(std::string_view piece,
                                    std::vector<std::int32_t>& tokens) const {
  constexpr std::int32_t kJoined = -1;  // marks a token that was joined to the token before it
  struct Symbol {
    std::int32_t token;
    std::size_t before;
    std::size_t after;
  };
  struct Candidate {
    std::uint32_t rank;
    std::size_t at;
    std::int32_t left, right, joined;
    bool operator>(const Candidate& other) const {
      return std::tie(rank, at) > std::tie(other.rank, other.at);
    }
  };
  const std::size_t end = piece.size();
  std::vector<Symbol> symbols;
  for (std::size_t i = 0; i < end; ++i) {
    symbols.push_back({.token = byte_tokens_[static_cast<unsigned char>(piece[i])],
                       .before = i == 0 ? end : i - 1,
                       .after = i + 1});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](std::size_t at) {
    if (at == end || symbols[at].after == end) return;
    const std::int32_t left = symbols[at].token;
    const std::int32_t right = symbols[symbols[at].after].token;
    if (const Place* place = find(left, right)) {
      candidates.push(
          {.rank = place->rank, .at = at, .left = left, .right = right, .joined = place->joined});
    }
  };
  for (std::size_t i = 0; i < end; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate candidate = candidates.top();
    candidates.pop();
    Symbol& left = symbols[candidate.at];
    if (left.token != candidate.left || left.after == end ||
        symbols[left.after].token != candidate.right) {
      continue;  // one of the two was joined to another token before
    }
    Symbol& right = symbols[left.after];
    left.token = candidate.joined;
    left.after = right.after;
    right.token = kJoined;
    if (left.after != end) symbols[left.after].before = candidate.at;
    consider(left.before);
    consider(candidate.at);
  }
  for (std::size_t i = 0; i < end; i = symbols[i].after) tokens.push_back(symbols[i].token);
}

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
    std::string bytes = tokens[static_cast<std::size_t>(left_of(*pair))] +
                        tokens[static_cast<std::size_t>(right_of(*pair))];
    // Another merge may have made a token of the same bytes.
    const auto [place, is_new] = ids.emplace(bytes, static_cast<std::int32_t>(tokens.size()));
    if (is_new) tokens.push_back(std::move(bytes));
    merges.push_back({.left = left_of(*pair), .right = right_of(*pair), .joined = place->second});
    merger.merge(*pair, place->second);
  }
  tokens.emplace_back(BytePairEncoding::kEndOfText);  // spans three pieces, so no merge makes it
  return {std::move(tokens), std::move(merges)};
}

}  // namespace kolo::trainer
