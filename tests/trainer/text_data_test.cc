// Tests data sets of labelled texts, and of ratings.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/trainer/small_data.h"
#include "trainer/catalog.h"
#include "trainer/config.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(VocabularyTest, WordsAreLowerCaseAndPunctuationStandsAlone) {
  EXPECT_THAT(split_words("Don't PANIC, it's 42!\t(na\xC3\xAFve)\n"),
              ElementsAre("don't", "panic", ",", "it's", "42", "!", "(", "na\xC3\xAFve", ")"));
  EXPECT_THAT(split_words(" \n"), ElementsAre());
}

TEST(VocabularyTest, FrequentWordsComeFirstAndEqualOnesInTheOrderOfTheirBytes) {
  const std::vector<std::string> texts = {"b a c", "c B d", "c"};
  const Vocabulary all(texts, {});
  EXPECT_EQ(all.size(), 6u);
  EXPECT_EQ(all.word(2), "c");
  EXPECT_EQ(all.word(3), "b");
  EXPECT_EQ(all.word(4), "a");
  EXPECT_EQ(all.id("d"), 5);
  EXPECT_EQ(all.id("e"), Vocabulary::kUnknown);
  EXPECT_EQ(all.id("<padding>"), Vocabulary::kUnknown);
  const Vocabulary twice(texts, {.min_count = 2});
  EXPECT_EQ(twice.size(), 4u);
  EXPECT_EQ(twice.id("a"), Vocabulary::kUnknown);
  const Vocabulary few(texts, {.most = 3});
  EXPECT_EQ(few.size(), 3u);
  EXPECT_EQ(few.id("c"), 2);
  EXPECT_EQ(few.id("b"), Vocabulary::kUnknown);
}

Config text_job(const std::filesystem::path& data) {
  Config config = default_config(built_in_catalog(), "mlp");
  config.task = "text-classification";
  config.data = data;
  config.max_length = 4;
  config.min_count = 1;
  return config;
}

Task task_of(const Config& config) { return make_task(config, built_in_catalog()); }

std::int32_t label_of(const Dataset& data, std::size_t index) {
  return elements_of<std::int32_t>(data, index, "label")[0];
}

TEST(TextDataTest, TextsAreCutAndPadded) {
  const TemporaryDirectory directory;
  directory.write("train.csv",
                  std::string("label,text\npos,good good film . Really\nneg,bad\npos,\n"));
  directory.write("test.csv", std::string("label,text\nneg,\"bad, unheard\"\n"));
  const Task task = task_of(text_job(directory.path()));
  const Dataset& train = *task.data.train;
  EXPECT_EQ(task.outputs, 2u);
  EXPECT_EQ(task.rows_per_sample, 1u);
  EXPECT_EQ(train.format().inputs[0].shape, (Shape{4}));
  EXPECT_EQ(train.format().inputs[0].values, 7u);  // two special entries; good . bad film really
  EXPECT_EQ(train.format().inputs[1].values, 5u);
  const auto tokens = [](const Dataset& data, std::size_t index) {
    return elements_of<std::int32_t>(data, index, "tokens");
  };
  EXPECT_THAT(tokens(train, 0), ElementsAre(2, 2, 5, 3));
  EXPECT_THAT(tokens(train, 1), ElementsAre(4, 0, 0, 0));
  EXPECT_THAT(tokens(train, 2), ElementsAre(1, 0, 0, 0));  // an empty text
  EXPECT_THAT(tokens(*task.data.held_out, 0), ElementsAre(4, 1, 1, 0));
  EXPECT_THAT(elements_of<std::int32_t>(train, 0, "length"), ElementsAre(4));
  EXPECT_THAT(elements_of<std::int32_t>(train, 2, "length"), ElementsAre(1));
  EXPECT_EQ(label_of(train, 0), 1);
  EXPECT_EQ(label_of(train, 1), 0);
}

// Other data has words and labels in another order, but must use the numbers of the first data.
TEST(TextDataTest, StoredWordsAndClassesGoBeforeThoseOfTheData) {
  const TemporaryDirectory directory;
  directory.write("one/train.csv",
                  std::string("label,text\npos,good \xE9t\xE9\nneg,bad\nodd,good good\n"));
  directory.write("one/test.csv", std::string("label,text\nneg,bad\n"));
  const TextFiles files = task_of(text_job(directory.path() / "one")).data.text_files;
  EXPECT_EQ(*files.find("classes.json"), "{\"neg\": 0, \"odd\": 1, \"pos\": 2}\n");
  EXPECT_THAT(*files.find("words.json"),
              HasSubstr("{\"<padding>\": 0, \"<unknown>\": 1, \"good\": 2, \"bad\": 3, "));

  directory.write("other/train.csv",
                  std::string("label,text\npos,new \xE9t\xE9 bad\nodd,bad good\n"));
  directory.write("other/test.csv", std::string("label,text\npos,good\n"));
  Config config = text_job(directory.path() / "other");
  config.text_files = files;
  EXPECT_EQ(task_of(config).outputs, 2u);  // a new model has the classes of its data
  config.weights = "weights";
  const Task task = task_of(config);
  EXPECT_EQ(task.outputs, 3u);
  EXPECT_EQ(task.data.text_files.texts, files.texts);
  EXPECT_THAT(elements_of<std::int32_t>(*task.data.train, 0, "tokens"), ElementsAre(1, 4, 3, 0));
  EXPECT_EQ(label_of(*task.data.train, 0), 2);
  EXPECT_EQ(label_of(*task.data.train, 1), 1);

  config.text_files.texts["words.json"] = "{\"good\": 0}";
  EXPECT_THAT(data_error([&] { task_of(config); }),
              HasSubstr("a vocabulary has <padding> as entry 0"));
  config.text_files = files;
  config.text_files.texts["classes.json"] = "{\"pos\": 0}";
  EXPECT_THAT(data_error([&] { task_of(config); }),
              HasSubstr("line 3: label 'odd' does not occur"));
}

TEST(TextDataTest, ColumnsHaveTheNamesThatOptionsGive) {
  const TemporaryDirectory directory;
  std::string rows;
  for (int i = 0; i < 10; ++i)
    rows += "{\"said\": \"w" + std::to_string(i) + "\", \"by\": " + std::to_string(i % 3) + "}\n";
  Config config = text_job(directory.write("talk.jsonl", rows));
  EXPECT_THAT(data_error([&] { task_of(config); }), HasSubstr("talk.jsonl: line 1: "));
  config.text_column = "said";
  config.label_column = "by";
  const Task task = task_of(config);
  EXPECT_EQ(task.data.train->size(), 9u);
  ASSERT_EQ(task.data.held_out->size(), 1u);
  EXPECT_EQ(task.outputs, 3u);
  EXPECT_THAT(elements_of<std::int32_t>(*task.data.held_out, 0, "tokens"), ElementsAre(1, 0, 0, 0));
}

TEST(TextDataTest, KnownSetsAreFoundByTheirFiles) {
  const auto load = [](const std::vector<std::pair<std::string, std::string>>& files) {
    const TemporaryDirectory directory;
    for (const auto& [name, text] : files) directory.write(name, text);
    return task_of(text_job(directory.path()));
  };
  const Task trec =
      load({{"train_5500.label", "DESC:manner How ?\nHUM:ind Who \xE9 ?\nDESC:def a\n"},
            {"TREC_10.label", "HUM:gr Who\n"}});
  EXPECT_EQ(trec.outputs, 2u);
  EXPECT_EQ(label_of(*trec.data.held_out, 0), 1);
  const Task sst2 =
      load({{"stsa.binary.train", "1 fine\n0 dull\n"}, {"stsa.binary.test", "0 dull\n"}});
  EXPECT_EQ(label_of(*sst2.data.held_out, 0), 0);
  const Task sms = load({{"SMSSpamCollection", "ham\ta\nspam\tb\nham\tc\nham\td\nspam\te\n"}});
  EXPECT_EQ(sms.data.train->size(), 4u);
  EXPECT_EQ(label_of(*sms.data.held_out, 0), 1);
  const Task imdb = load({{"train.tsv", "0\tbad \"film\"\n1\tgood\n"}, {"test.tsv", "1\tgood\n"}});
  EXPECT_EQ(label_of(*imdb.data.held_out, 0), 1);
  const Task tsv = load(
      {{"train.tsv", "text\tlabel\nbad\t0\ngood\t1\n"}, {"test.tsv", "text\tlabel\ngood\t1\n"}});
  EXPECT_EQ(label_of(*tsv.data.held_out, 0), 1);
}

TEST(TextDataTest, MistakesNameFileAndLine) {
  const TemporaryDirectory directory;
  const auto error = [&](const std::string& train, const std::string& test) {
    directory.write("train.csv", "text,label\n" + train);
    directory.write("test.csv", "text,label\n" + test);
    return data_error([&] { task_of(text_job(directory.path())); });
  };
  EXPECT_THAT(error("a,x\nb,y\n", "a,x\na,z\n"),
              HasSubstr("test.csv: line 3: label 'z' does not occur in the training data"));
  EXPECT_THAT(error("a,x\nb,x\n", "a,x\n"), HasSubstr("train.csv: all texts have the label 'x'"));
  EXPECT_THAT(error("", "a,x\n"), HasSubstr("train.csv: there are no texts"));
  EXPECT_THAT(error("a,x\nb,y\n", ""), HasSubstr("test.csv: there are no texts"));
  directory.write("train_5500.label", std::string("DESC How ?\n"));
  directory.write("TREC_10.label", std::string("DESC:x How ?\n"));
  EXPECT_THAT(data_error([&] { task_of(text_job(directory.path())); }),
              HasSubstr("train_5500.label: line 1: no colon in the label 'DESC'"));
}

TEST(TextDataTest, TextsWithLabelsAreNoText) {
  const TemporaryDirectory directory;
  Config config = text_job(directory.write(
      "t.csv", std::string("text,label\n") + "a,x\nb,y\na,x\nb,y\na,x\nb,y\na,x\nb,y\na,x\nb,y\n"));
  config.task = "language-model";
  config.format = "csv";
  EXPECT_THAT(data_error([&] { task_of(config); }),
              HasSubstr("needs samples with a window of tokens"));
  config.task = "rating";
  EXPECT_THAT(data_error([&] { task_of(config); }), HasSubstr("needs samples with a number"));
}

TEST(TextDataTest, OtherTextsOrLabelsHaveAnotherHash) {
  const TemporaryDirectory directory;
  const auto hash_with = [&](const std::string& row) {
    const std::string others = "b,y\na,x\nb,y\na,x\nb,y\na,x\nb,y\na,x\n";
    const std::string csv = "text,label\n" + row + others + row;
    return task_of(text_job(directory.write("t.csv", csv))).data.text_hash;
  };
  const std::uint64_t hash = hash_with("a,x\n");
  EXPECT_EQ(hash_with("a,x\n"), hash);
  EXPECT_NE(hash_with("b,x\n"), hash);
  EXPECT_NE(hash_with("a,y\n"), hash);
}

Config rating_job(const std::filesystem::path& data) {
  Config config = text_job(data);
  config.task = "rating";
  return config;
}

TEST(RatingDataTest, UsersAndItemsAreNumberedByTheTrainingRows) {
  const TemporaryDirectory directory;
  std::string text = "userId,movieId,rating,timestamp\r\n";
  for (int i = 0; i < 9; ++i)
    text += std::to_string(1 + i % 2) + "," + std::to_string(100 * (9 - i)) + "," +
            (i % 2 ? "3.5" : "0.5") + ",9\r\n";
  text += "7,500,5.0,9\r\n";
  directory.write("ratings.csv", text);
  const Task task = task_of(rating_job(directory.path()));
  const Dataset& train = *task.data.train;
  ASSERT_EQ(train.size(), 9u);
  EXPECT_EQ(task.outputs, 1u);
  EXPECT_EQ(train.format().inputs[0].values, 3u);
  EXPECT_EQ(train.format().inputs[1].values, 10u);
  EXPECT_THAT(elements_of<std::int32_t>(train, 0, "user"), ElementsAre(1));
  EXPECT_THAT(elements_of<std::int32_t>(train, 0, "item"), ElementsAre(9));
  EXPECT_THAT(elements_of<float>(train, 1, "rating"), ElementsAre(3.5f));
  const Field& rating = train.format().targets[0];
  EXPECT_NEAR(rating.mean, (5 * 0.5 + 4 * 3.5) / 9, 1e-12);
  EXPECT_NEAR(rating.deviation, std::sqrt((5 * 0.25 + 4 * 12.25) / 9 - rating.mean * rating.mean),
              1e-12);
  const Dataset& held_out = *task.data.held_out;
  ASSERT_EQ(held_out.size(), 1u);
  EXPECT_THAT(elements_of<std::int32_t>(held_out, 0, "user"), ElementsAre(0));
  EXPECT_THAT(elements_of<std::int32_t>(held_out, 0, "item"), ElementsAre(5));
  EXPECT_EQ(task.metric.name, "rmse");
  EXPECT_DOUBLE_EQ(task.metric.of({.score = 18.0, .rows = 2.0}), 3.0);
}

TEST(RatingDataTest, MistakesNameFileAndLine) {
  const TemporaryDirectory directory;
  const auto error = [&](const std::string& text) {
    directory.write("ratings.csv", text);
    return data_error([&] { task_of(rating_job(directory.path())); });
  };
  EXPECT_THAT(error("userId,movieId,rating\n1,x,3\n"),
              HasSubstr("ratings.csv: line 2: 'x' in column movieId"));
  EXPECT_THAT(error("userId,movieId,rating\n1,2,three\n"),
              HasSubstr("line 2: 'three' in column rating"));
  EXPECT_THAT(error("userId,movieId,rating\n1,2,1e39\n"),
              HasSubstr("line 2: the rating is beyond float32"));
  EXPECT_THAT(error("userId,movieId\n1,2\n"), HasSubstr("no column 'rating'"));
  EXPECT_THAT(error("userId,movieId,rating\n"), HasSubstr("there are no ratings"));
}

TEST(OptdigitsTest, RowsAreImagesAndMistakesNameFileAndLine) {
  const TemporaryDirectory directory;
  const auto row = [](int first, int label) {
    std::string text = std::to_string(first);
    for (int i = 1; i < 64; ++i) text += "," + std::to_string(i % 17);
    return text + "," + std::to_string(label) + "\n";
  };
  const auto load = [&](const std::string& train) {
    directory.write("optdigits.tra", train);
    directory.write("optdigits.tes", row(0, 9));
    Config config = text_job(directory.path());
    config.task = "image-classification";
    return task_of(config);
  };
  const Task task = load(row(7, 3) + row(16, 0));
  const Dataset& train = *task.data.train;
  EXPECT_EQ(train.size(), 2u);
  EXPECT_EQ(train.format().inputs[0].shape, (Shape{8, 8, 1}));
  EXPECT_EQ(elements_of<std::uint8_t>(train, 1, "image")[0], 16);
  EXPECT_EQ(elements_of<std::uint8_t>(train, 1, "image")[63], 63 % 17);
  EXPECT_EQ(label_of(train, 0), 3);
  EXPECT_THAT(data_error([&] { load(row(7, 3) + row(17, 3)); }),
              HasSubstr("optdigits.tra: line 2: pixel 17 is out of range"));
  EXPECT_THAT(data_error([&] { load(row(7, 10)); }), HasSubstr("line 1: label 10 is out of range"));
  EXPECT_THAT(data_error([&] { load(""); }), HasSubstr(": there are no training samples"));
  EXPECT_THAT(data_error([&] { load("1,2\n"); }), HasSubstr("line 1: 2 numbers in place of 65"));
  EXPECT_THAT(data_error([&] { load("x" + row(7, 3)); }), HasSubstr("line 1: 'x7' in column 1"));
}

}  // namespace
}  // namespace kolo::trainer
