// Tests vocabularies with marks, and texts with hidden words.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/small_data.h"
#include "trainer/catalog.h"
#include "trainer/config.h"
#include "trainer/text/masked_texts.h"
#include "trainer/text/tokenizer.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(MarkedVocabularyTest, AFileGivesTheSameNumbers) {
  const std::vector<std::string> texts = {"b a c", "c [MASK] b"};
  for (const bool has_marks : {false, true}) {
    const Vocabulary made(texts, {.has_marks = has_marks});
    EXPECT_EQ(made.marks().has_value(), has_marks);
    EXPECT_EQ(made.id("b"), has_marks ? 4 : 2);
    EXPECT_EQ(made.id("[MASK]"), Vocabulary::kUnknown);
    const Vocabulary read =
        Vocabulary::from_entries(from_numbered_json(to_numbered_json(made.words()), "f"), "f");
    EXPECT_EQ(read.words(), made.words());
    EXPECT_EQ(read.marks().has_value(), has_marks);
    for (const char* word : {"a", "b", "c", "mask", "[", "d"}) {
      EXPECT_EQ(read.id(word), made.id(word)) << word;
    }
  }
}

TEST(MarkedVocabularyTest, MistakesInAFileNameTheEntry) {
  const auto error = [](std::vector<std::string> words) {
    return data_error([&] { Vocabulary::from_entries(std::move(words), "words.json"); });
  };
  EXPECT_THAT(error({"a", "b"}), HasSubstr("words.json: a vocabulary has <padding> as entry 0"));
  EXPECT_THAT(error({"<padding>"}), HasSubstr("a vocabulary has <unknown> as entry 1"));
  EXPECT_THAT(error({"<padding>", "<unknown>", "a", "A"}), HasSubstr("entry 3, 'A', is not one"));
  EXPECT_THAT(error({"<padding>", "<unknown>", "[CLS]"}), HasSubstr("entry 2, '[CLS]', is not"));
  EXPECT_THAT(error({"<padding>", "<unknown>", "a", ""}), HasSubstr("entry 3, '', is not one"));
}

Config masked_job(const std::filesystem::path& data) {
  Config config = default_config(built_in_catalog(), "bert");
  config.task = "masked-tokens";
  config.data = data;
  config.min_count = 1;
  return config;
}

Task task_of(const Config& config) { return make_task(config, built_in_catalog()); }

std::vector<std::int32_t> of(const Dataset& data, std::size_t index, const char* field) {
  return elements_of<std::int32_t>(data, index, field);
}

TEST(MaskedTextsTest, TextsBeginWithTheirMark) {
  const TemporaryDirectory directory;
  directory.write("train.csv", std::string("text,label\ngood film,x\nbad bad bad bad,y\n,x\n"));
  directory.write("test.csv", std::string("text,label\nbad,x\n"));
  Config config = masked_job(directory.path());
  config.task = "text-classification";
  config.max_length = 4;
  const Task task = task_of(config);
  EXPECT_EQ(task.format().inputs[0].values, 7u);  // four special entries; bad film good
  EXPECT_THAT(of(*task.data.train, 0, "tokens"), ElementsAre(2, 6, 5, 0));
  EXPECT_THAT(of(*task.data.train, 0, "length"), ElementsAre(3));
  EXPECT_THAT(of(*task.data.train, 1, "tokens"), ElementsAre(2, 4, 4, 4));
  EXPECT_THAT(of(*task.data.train, 2, "tokens"), ElementsAre(2, 1, 0, 0));
}

TEST(MaskedTextsTest, WordsOfATextFillWindows) {
  const TemporaryDirectory directory;
  std::string text = "a b\n\nc a\n";
  for (int line = 0; line < 8; ++line) text += "a\n";
  Config config = masked_job(directory.write("book.txt", text));
  config.max_length = 6;
  const Task task = task_of(config);
  const Dataset& train = *task.data.train;
  ASSERT_EQ(train.size(), 3u);  // eleven words, five in each sample
  EXPECT_EQ(task.data.held_out->size(), 1u);
  EXPECT_THAT(of(train, 0, "length"), ElementsAre(6));
  EXPECT_THAT(of(train, 2, "length"), ElementsAre(2));
  EXPECT_EQ(of(train, 0, "tokens")[0], Vocabulary::kClass);
  config.data = directory.write("short.txt", std::string("a\nb\n"));
  EXPECT_THAT(data_error([&] { task_of(config); }), HasSubstr("it has 2 lines with words"));
}

/// Returns 300 lines of 30 words each, drawn from 50 words.
std::string many_words() {
  Random random(3);
  std::string text;
  for (int line = 0; line < 300; ++line) {
    for (int word = 0; word < 30; ++word) text += "w" + std::to_string(random.below(50)) + " ";
    text += "\n";
  }
  return text;
}

// Bound: four deviations of a share of about 1200 draws, 0.8 ± 0.05 and 0.1 ± 0.035.
TEST(MaskedTextsTest, FifteenPerCentAreChosenAndMostOfThemHidden) {
  const TemporaryDirectory directory;
  Config config = masked_job(directory.write("words.txt", many_words()));
  config.max_length = 31;
  const Task task = task_of(config);
  const auto texts = [&] {
    Config plain = config;
    plain.task = "masked-tokens";
    return task_of(plain);
  }();
  const Dataset& train = *task.data.train;
  EXPECT_EQ(task.rows_per_sample, 5u);  // 15 % of 30, rounded
  EXPECT_EQ(task.mean_targets, 5.0);
  std::array<double, 3> kinds{};
  std::map<std::int32_t, int> places;
  double all = 0;
  for (std::size_t i = 0; i < train.size(); ++i) {
    const auto tokens = of(train, i, "tokens");
    const auto chosen = of(train, i, "chosen");
    const auto hidden = of(train, i, "hidden");
    ASSERT_TRUE(std::ranges::is_sorted(chosen));
    ASSERT_EQ(std::ranges::adjacent_find(chosen), chosen.end());
    for (std::size_t j = 0; j < chosen.size(); ++j) {
      ASSERT_GE(hidden[j], static_cast<std::int32_t>(Vocabulary::kMarked));
      const std::int32_t token = tokens[static_cast<std::size_t>(chosen[j])];
      const std::size_t kind = token == Vocabulary::kMask ? 0 : token == hidden[j] ? 2 : 1;
      if (kind == 1) {
        ASSERT_GE(token, static_cast<std::int32_t>(Vocabulary::kMarked));
      }
      ++kinds[kind];
      ++places[chosen[j]];
      ++all;
    }
  }
  EXPECT_NEAR(kinds[0] / all, 0.8, 0.05);
  EXPECT_NEAR(kinds[1] / all, 0.1, 0.035);
  EXPECT_NEAR(kinds[2] / all, 0.1, 0.035);
  EXPECT_EQ(places.size(), 30u);  // all except the mark
  EXPECT_EQ(places.count(0), 0u);
}

TEST(MaskedTextsTest, ChoicesFollowSeedEpochAndIndexAlone) {
  const TemporaryDirectory directory;
  Config config = masked_job(directory.write("words.txt", many_words()));
  const Task task = task_of(config), again = task_of(config);
  config.seed = 2;
  const Task other = task_of(config);
  const auto chosen = [](const Task& of_task, std::size_t index, std::uint64_t epoch) {
    const SampleFormat& format = of_task.format();
    std::vector<std::int32_t> tokens(format.inputs[0].elements()), length(1),
        places(format.inputs[2].elements()), hidden(places.size());
    const TensorSlot inputs[] = {tokens, length, places};
    const TensorSlot targets[] = {hidden};
    of_task.data.train->copy(index, epoch, inputs, targets);
    return std::pair(tokens, places);
  };
  EXPECT_EQ(chosen(task, 3, 1), chosen(again, 3, 1));
  EXPECT_NE(chosen(task, 3, 1).second, chosen(task, 3, 2).second);
  EXPECT_NE(chosen(task, 3, 1).second, chosen(task, 4, 1).second);
  EXPECT_NE(chosen(task, 3, 1).second, chosen(other, 3, 1).second);
}

TEST(MaskedTextsTest, ShortTextsHaveOneChosenWordAndRowsWithoutTarget) {
  const TemporaryDirectory directory;
  Config config = masked_job(directory.write("t.csv", small_labelled_texts(50)));
  config.format = "csv";
  config.max_length = 21;
  const Task task = task_of(config);
  ASSERT_EQ(task.rows_per_sample, 3u);
  double chosen = 0;
  for (std::size_t i = 0; i < task.data.train->size(); ++i) {
    const auto hidden = of(*task.data.train, i, "hidden");
    const auto count = static_cast<std::size_t>(3 - std::ranges::count(hidden, kNoTarget));
    const auto words = static_cast<std::size_t>(of(*task.data.train, i, "length")[0] - 1);
    EXPECT_EQ(count, MaskedTexts::chosen_of(words));
    EXPECT_NE(hidden[0], kNoTarget);
    chosen += static_cast<double>(count);
  }
  EXPECT_DOUBLE_EQ(task.targets_per_sample(), chosen / 45.0);
}

TEST(MaskedTextsTest, TheVocabularyOfAnotherRunIsTaken) {
  const TemporaryDirectory directory;
  Config config = masked_job(directory.write("book.txt", many_words()));
  std::string& words = config.text_files.texts["words.json"];
  words = to_numbered_json({"<padding>", "<unknown>", "[CLS]", "[MASK]", "w7"});
  EXPECT_EQ(task_of(config).format().inputs[0].values, 5u);
  words = to_numbered_json({"<padding>", "<unknown>", "w7"});
  EXPECT_THAT(data_error([&] { task_of(config); }), HasSubstr("words.json: it has no [CLS]"));
  words = to_numbered_json({"<padding>", "<unknown>", "[CLS]", "[MASK]"});
  EXPECT_THAT(data_error([&] { task_of(config); }), HasSubstr("no words that can be told apart"));
}

TEST(MaskedTextsTest, AnotherTextHasAnotherHash) {
  const TemporaryDirectory directory;
  std::string text = many_words();
  const auto hash = [&] {
    return task_of(masked_job(directory.write("book.txt", text))).data.text_hash;
  };
  const std::uint64_t before = hash();
  EXPECT_EQ(hash(), before);
  std::ranges::reverse(text);
  EXPECT_NE(hash(), before);
}

TEST(MaskedTextsTest, OtherTasksRefuseTextsWithoutTarget) {
  const TemporaryDirectory directory;
  Config config = masked_job(directory.write("book.txt", many_words()));
  config.format = "words";
  for (const char* task : {"text-classification", "language-model", "rating"}) {
    config.task = task;
    EXPECT_THAT(data_error([&] { task_of(config); }), HasSubstr("needs samples with")) << task;
  }
}

}  // namespace
}  // namespace kolo::trainer
