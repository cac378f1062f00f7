// Tests pieces of texts, byte pairs and their files. A .py test compares another implementation.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/trainer/small_data.h"
#include "trainer/random.h"
#include "trainer/text/byte_pair_encoding.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> found;
  PieceSplitter().split(text, [&](std::string_view piece) { found.emplace_back(piece); });
  return found;
}

std::string random_bytes(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(random.below(256)));
  return bytes;
}

BytePairEncoding learnt(const std::string& text, std::size_t size) {
  PieceCounts counts;
  counts.add(text);
  return learn_byte_pairs(counts, size);
}

// These are examples of GPT-2's pattern. The first is from the docstring of OpenAI's tiktoken.
TEST(PieceSplitterTest, CutsAsGpt2Does) {
  EXPECT_THAT(pieces("hello world"), ElementsAre("hello", " world"));
  EXPECT_THAT(pieces("we'll  do 42things...\n\n  can't"),
              ElementsAre("we", "'ll", " ", " do", " 42", "things", "...", "\n\n ", " can", "'t"));
  EXPECT_THAT(pieces("a\n\nb "), ElementsAre("a", "\n", "\n", "b", " "));
  EXPECT_THAT(pieces("<|endoftext|>"), ElementsAre("<|", "endoftext", "|>"));
  EXPECT_THAT(pieces(""), ElementsAre());
}

TEST(PieceSplitterTest, LettersNumbersAndSpacesAreThoseOfUnicode) {
  EXPECT_THAT(pieces("na\u00EFve \u0416\u0443\u043A\u00BD\u00A0\u65E5\u672C\u2026"),
              ElementsAre("na\u00EFve", " \u0416\u0443\u043A", "\u00BD", "\u00A0", "\u65E5\u672C",
                          "\u2026"));
  EXPECT_THAT(pieces("a\u180E"), ElementsAre("a", "\u180E"));             // not a space in Unicode
  EXPECT_THAT(pieces("caf\u0065\u0301"), ElementsAre("cafe", "\u0301"));  // a mark is not a letter
}

TEST(PieceSplitterTest, BytesThatAreNoUtf8StandAlone) {
  EXPECT_THAT(pieces("ab\xFF\xFE"
                     "cd \xC3"),
              ElementsAre("ab", "\xFF\xFE", "cd", " ", "\xC3"));
  EXPECT_THAT(pieces("\xC3("), ElementsAre("\xC3", "("));
}

TEST(PieceSplitterTest, TheCutsOfLongTextsChangeNoPiece) {
  Random random(3);
  std::string text;
  while (text.size() < 40'000) {
    const char* const parts[] = {"word", " ", "  ", "\n",     "\n\n",
                                 "'s",   "7", ".",  "\u00A0", "\u00E9"};
    text += parts[random.below(std::size(parts))];
  }
  std::vector<std::string> by_cuts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = next_cut(text, begin + 1);
    for (std::string& piece : pieces(text.substr(begin, end - begin))) {
      by_cuts.push_back(std::move(piece));
    }
    begin = end;
  }
  EXPECT_EQ(by_cuts, pieces(text));
  EXPECT_EQ(next_cut("ab cd", 1), 2u);
  EXPECT_EQ(next_cut("ab cd", 3), 5u);
}

TEST(ByteAlphabetTest, IsGpt2s) {
  EXPECT_EQ(to_visible(" a\n\xC3\xA9"), "\u0120a\u010A\u00C3\u00A9");
  EXPECT_EQ(to_visible(std::string_view("\0\x7F\xAD", 3)), "\u0100\u0121\u0143");
  const std::string all = random_bytes(5000, 1);
  EXPECT_EQ(from_visible(to_visible(all)), all);
  for (const char* other : {"\u0144", "\u20AC", " ", "\xC3", "\xFF"}) {
    EXPECT_EQ(from_visible(other), std::nullopt) << other;
  }
  EXPECT_EQ(bytes_in_order()[0], '!');
  EXPECT_EQ(bytes_in_order()[188], 0);
}

// Pieces are low ×2, lowlow ×2, er ×3: l o and o w occur 6 times, then lo w 6, e r 3, low low 2.
TEST(LearnBytePairsTest, MergesTheMostFrequentPairAndLowerNumbersFirst) {
  const BytePairEncoding bpe = learnt("low\nlow\nlowlow\nlowlow\ner\ner\ner\nzq", 1000);
  std::vector<std::string> made;
  for (const auto& merge : bpe.merges()) made.emplace_back(bpe.bytes_of(merge.joined));
  EXPECT_THAT(made, ElementsAre("lo", "low", "er", "lowlow"));
  EXPECT_EQ(bpe.size(), kFewestTokens + 4);
  EXPECT_EQ(bpe.bytes_of(*bpe.end_of_text()), "<|endoftext|>");
  EXPECT_EQ(*bpe.end_of_text(), 260);
  EXPECT_THAT(bpe.encode("lowlowlow"), ElementsAre(259, 257));
  EXPECT_EQ(learnt("low\nlow", 258).size(), 258u);
  EXPECT_EQ(learnt("", 258).size(), kFewestTokens);
}

// After a a is merged, the text is aa aa a. The pairs (aa a) and (aa aa) occur once each, and a has
// the lower number.
TEST(LearnBytePairsTest, EqualNeighboursMergeFromLeftToRight) {
  const BytePairEncoding bpe = learnt("aaaaa\naaaaa", kFewestTokens + 2);
  EXPECT_EQ(bpe.bytes_of(257), "aaa");
  EXPECT_THAT(bpe.encode("aaaaa"), ElementsAre(256, 257));
  EXPECT_THAT(bpe.encode("aaa"), ElementsAre(257));
  EXPECT_THAT(bpe.encode("aaaa"), ElementsAre(256, 256));
}

TEST(BytePairEncodingTest, AnyBytesComeBack) {
  const BytePairEncoding bpe = learnt(small_text(5000) + "\u00E9t\u00E9 \u65E5\u672C", 300);
  EXPECT_GT(bpe.merges().size(), 20u);
  for (const std::string& text :
       {std::string(), small_text(300), random_bytes(20'000, 2), std::string("\u65E5\u672C\n\n "),
        std::string("<|endoftext|>"), std::string(3000, 'x') + std::string(2000, ' ')}) {
    const std::vector<std::int32_t> tokens = bpe.encode(text);
    EXPECT_EQ(bpe.decode(tokens), text);
    EXPECT_THAT(tokens, testing::Each(testing::Ne(*bpe.end_of_text())));
  }
  EXPECT_LT(bpe.encode(small_text(5000)).size(), 1500u);
}

TEST(BytePairEncodingTest, FilesMakeAnEqualOne) {
  const BytePairEncoding bpe = learnt(small_text(5000), 290);
  const TextFiles files = bpe.files();
  const BytePairEncoding again = BytePairEncoding::from_files(files);
  EXPECT_EQ(again.files().texts, files.texts);
  EXPECT_EQ(again.end_of_text(), bpe.end_of_text());
  const std::string text = small_text(700) + random_bytes(700, 3);
  EXPECT_EQ(again.encode(text), bpe.encode(text));
  EXPECT_TRUE(files.find("merges.txt")->starts_with("#version: 0.2\n"));
}

TEST(BytePairEncodingTest, BadFilesAreNamedWithThePlace) {
  TextFiles files = learnt(small_text(500), 260).files();
  files.origin = "gpt2";
  const auto error_with = [&](const char* name, const std::string& text) {
    TextFiles changed = files;
    changed.texts[name] = text;
    return data_error([&] { BytePairEncoding::from_files(changed); });
  };
  EXPECT_THAT(error_with("vocab.json", "{\"a\": 0"), HasSubstr("gpt2/vocab.json: at byte 7: "));
  EXPECT_THAT(error_with("vocab.json", "[1]"), HasSubstr("no object of names and numbers"));
  EXPECT_THAT(error_with("vocab.json", "{\"a\": 0, \"b\": 2}"),
              HasSubstr("'b' has 2, and 2 names"));
  EXPECT_THAT(error_with("vocab.json", "{\"a\": 0, \"b\": -1}"), HasSubstr("'b' has -1"));
  EXPECT_THAT(error_with("vocab.json", "{\"a\": 0, \"\u20AC\": 1}"),
              HasSubstr("'\u20AC' has characters that stand for no byte"));
  EXPECT_THAT(error_with("vocab.json", "{\"a\": 0}"), HasSubstr("the byte 33, '!', is missing"));
  EXPECT_THAT(error_with("merges.txt", *files.find("merges.txt") + "x\n"),
              HasSubstr("gpt2/merges.txt: line 5: 'x' is not two tokens"));
  EXPECT_THAT(error_with("merges.txt", "q q\n"), HasSubstr("line 1: 'qq' is not in vocab.json"));
  files.texts.erase("merges.txt");
  EXPECT_THAT(data_error([&] { BytePairEncoding::from_files(files); }),
              HasSubstr("gpt2/merges.txt: no such file"));
}

TEST(ByteTokenizerTest, BytesAreTheirTokens) {
  const ByteTokenizer bytes;
  EXPECT_THAT(bytes.encode("a\xFF"), ElementsAre(97, 255));
  EXPECT_EQ(bytes.decode(bytes.encode(random_bytes(1000, 4))), random_bytes(1000, 4));
  EXPECT_EQ(bytes.size(), 256u);
  EXPECT_EQ(bytes.end_of_text(), std::nullopt);
}

}  // namespace
}  // namespace kolo::trainer
