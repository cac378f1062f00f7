// Tests texts as token files, and the vocabularies stored with a model's weights.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/trainer/small_data.h"
#include "trainer/catalog.h"
#include "trainer/checkpoint/stored_weights.h"
#include "trainer/config.h"
#include "trainer/data/files.h"
#include "trainer/text/tokenizer.h"
#include "trainer/tokens/tokenize.h"
#include "trainer/tokens/tokens.h"

namespace kolo::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void ignore_notes(const std::string&) {}

template <typename T>
std::string bytes_of(const std::vector<T>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(T)};
}

/// Returns all tokens of one part of a folder, read without the data set.
std::vector<std::int32_t> stored_tokens(const std::filesystem::path& folder,
                                        const std::vector<TokenFolder::Shard>& shards) {
  std::vector<std::int32_t> all;
  for (const TokenFolder::Shard& shard : shards) {
    const MappedFile file(folder / shard.file);
    for (std::size_t i = 0; i < shard.tokens; ++i) {
      std::uint16_t token;
      std::memcpy(&token, file.bytes().data() + 2 * i, 2);
      all.push_back(token);
    }
  }
  return all;
}

class TokensTest : public testing::Test {
 protected:
  Config job(const std::filesystem::path& data) const {
    Config config = default_config(built_in_catalog(), "gpt");
    config.data = data;
    config.context = 8;
    return config;
  }
  /// Makes a folder of the tokens of `data`, in files of 100 tokens.
  std::filesystem::path tokenized(const std::filesystem::path& data, const std::string& name,
                                  const std::filesystem::path& tokenizer = {}) const {
    const auto out = directory_.path() / name;
    tokenize(
        {.data = data, .out = out, .tokenizer = tokenizer, .vocabulary = 290, .shard_tokens = 100},
        ignore_notes);
    return out;
  }
  std::filesystem::path text(std::size_t bytes = 3000) const {
    return directory_.write("text.txt", small_text(bytes));
  }
  static Task task_of(const Config& config) { return make_task(config, built_in_catalog()); }

  TemporaryDirectory directory_;
};

TEST_F(TokensTest, WindowsAreThoseOfEachArrayInEachWidth) {
  const std::vector<std::int32_t> wide = {70'000, 1, 2, 3, 4};
  const std::vector<std::uint16_t> narrow = {9, 8, 7};
  const std::vector<std::uint8_t> bytes = {5, 6};
  const auto array = [](const auto& tokens) {
    return TokenArray{
        .bytes = std::as_bytes(std::span(tokens)), .width = sizeof tokens[0], .owner = nullptr};
  };
  const TokenDataset data({array(wide), array(bytes), array(narrow), array(bytes)}, 70'001, 2);
  ASSERT_EQ(data.size(), 3u);  // two samples of five tokens, and one of three
  EXPECT_THAT(elements_of<std::int32_t>(data, 0, "tokens"), ElementsAre(70'000, 1));
  EXPECT_THAT(elements_of<std::int32_t>(data, 0, "next"), ElementsAre(1, 2));
  EXPECT_THAT(elements_of<std::int32_t>(data, 1, "next"), ElementsAre(3, 4));
  EXPECT_THAT(elements_of<std::int32_t>(data, 2, "tokens"), ElementsAre(9, 8));
  EXPECT_EQ(data.format().inputs[0].values, 70'001u);
}

TEST_F(TokensTest, AFolderHoldsTheTextAndTheTextHoldsNoMore) {
  const auto folder = tokenized(text(), "tokens");
  const TokenFolder known = read_token_folder(folder);
  const auto tokenizer = make_tokenizer(read_text_files(folder));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(known.vocabulary, tokenizer->size());
  EXPECT_EQ(known.width, 2u);
  EXPECT_THAT(known.tokenizer, ElementsAre("merges.txt", "vocab.json"));
  EXPECT_GT(known.train.size(), 3u);
  EXPECT_EQ(known.train[0].tokens, 100u);
  const std::string all = small_text(3000);
  EXPECT_EQ(tokenizer->decode(stored_tokens(folder, known.train)), all.substr(0, 2700));
  EXPECT_EQ(tokenizer->decode(stored_tokens(folder, known.held_out)), all.substr(2700));
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "tokens.partial"));
  EXPECT_NO_THROW(verify_tokens(folder, ignore_notes));

  const Task task = task_of(job(folder));
  EXPECT_EQ(task.outputs, tokenizer->size());
  EXPECT_EQ(task.data.train->size(),
            (known.train.size() - 1) * 12 + (known.train.back().tokens - 1) / 8);
  const auto all_tokens = stored_tokens(folder, known.train);
  const auto window = elements_of<std::int32_t>(*task.data.train, 13, "tokens");
  EXPECT_EQ(window, std::vector<std::int32_t>(all_tokens.begin() + 108, all_tokens.begin() + 116));
}

TEST_F(TokensTest, TheNameOfAFolderMayEndWithASlash) {
  EXPECT_NO_THROW(verify_tokens(tokenized(text(), "tokens/"), ignore_notes));
}

TEST_F(TokensTest, TheVocabularyIsOfTheTrainingPartAlone) {
  const std::string train = small_text(900);
  const auto one = tokenized(directory_.write("one.txt", train + std::string(100, 'x')), "one");
  const auto other =
      tokenized(directory_.write("other.txt", train + std::string(100, 'y')), "other");
  EXPECT_EQ(read_text_files(one).texts, read_text_files(other).texts);
}

TEST_F(TokensTest, FilesOfADirectoryHaveAnEndOfTextBetweenThem) {
  directory_.write("texts/a.txt", std::string("aaa bbb"));
  directory_.write("texts/b.txt", std::string("ccc"));
  directory_.write("texts/c.txt", std::string("0123456789"));
  const auto folder = tokenized(directory_.path() / "texts", "tokens");
  const auto tokenizer = make_tokenizer(read_text_files(folder));
  const TokenFolder known = read_token_folder(folder);
  EXPECT_EQ(tokenizer->decode(stored_tokens(folder, known.train)),
            "aaa bbb<|endoftext|>ccc<|endoftext|>01234567");
  EXPECT_EQ(tokenizer->decode(stored_tokens(folder, known.held_out)), "89");
}

TEST_F(TokensTest, TheSameTokenizerMakesTheSameTokens) {
  const auto first = tokenized(text(), "first");
  const auto second = tokenized(text(), "second", first);
  EXPECT_EQ(read_token_folder(second), read_token_folder(first));
  EXPECT_EQ(read_text_files(second).texts, read_text_files(first).texts);
}

// A line of 47 bytes has about 11 tokens, so a token represents about four bytes.
TEST_F(TokensTest, BitsPerByteCompareTokensWithBytes) {
  const auto folder = tokenized(text(), "tokens");
  const Task tokens = task_of(job(folder));
  const auto tokenizer = make_tokenizer(read_text_files(folder));
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < tokens.data.held_out->size(); ++i) {
    bytes += tokenizer->decode(elements_of<std::int32_t>(*tokens.data.held_out, i, "next")).size();
  }
  const double rows = 8.0 * static_cast<double>(tokens.data.held_out->size());
  ASSERT_TRUE(tokens.bytes_per_row.has_value());
  EXPECT_DOUBLE_EQ(*tokens.bytes_per_row, static_cast<double>(bytes) / rows);
  EXPECT_GT(*tokens.bytes_per_row, 3.0);
  EXPECT_DOUBLE_EQ(*tokens.bits_per_byte(std::log(2.0) * *tokens.bytes_per_row), 1.0);

  EXPECT_DOUBLE_EQ(*task_of(job(text())).bits_per_byte(std::log(256.0)), 8.0);
}

TEST_F(TokensTest, TextIsReadWithATokenizerThatTheJobHas) {
  const auto folder = tokenized(text(), "tokens");
  Config config = job(text());
  config.text_files = read_text_files(folder);
  const Task task = task_of(config);
  EXPECT_EQ(task.data.text_files.texts, read_text_files(folder).texts);
  EXPECT_EQ(elements_of<std::int32_t>(*task.data.held_out, 1, "next"),
            elements_of<std::int32_t>(*task_of(job(folder)).data.held_out, 1, "next"));
  EXPECT_EQ(task_of(job(text())).outputs, 256u);
}

TEST_F(TokensTest, OtherTokenizersAreRefused) {
  const auto folder = tokenized(text(), "tokens");
  Config config = job(folder);
  config.text_files = ByteTokenizer().files();
  config.text_files.origin = "weights.safetensors";
  EXPECT_THAT(data_error([&] { task_of(config); }),
              HasSubstr("made with another tokenizer than that of weights.safetensors"));
}

TEST_F(TokensTest, DamagedFoldersAreNamedWithThePlace) {
  const auto folder = tokenized(text(), "tokens");
  const auto error_of_job = [&] { return data_error([&] { task_of(job(folder)); }); };
  const auto shard = folder / "train-00001.bin";
  const Bytes whole = [&] {
    const MappedFile file(shard);
    return Bytes(file.bytes().begin(), file.bytes().end());
  }();

  Bytes changed = whole;
  changed[40] ^= 1;
  directory_.write("tokens/train-00001.bin", changed);
  EXPECT_THAT(data_error([&] { verify_tokens(folder, ignore_notes); }),
              HasSubstr("train-00001.bin: its XXH3 sum is "));
  changed[40] = changed[41] = 0xFF;
  directory_.write("tokens/train-00001.bin", changed);
  const Task task = task_of(job(folder));
  const std::string outside =
      data_error([&] { elements_of<std::int32_t>(*task.data.train, 12 + 2, "tokens"); });
  EXPECT_THAT(outside, HasSubstr("train-00001.bin: at byte 40: token 65535 is not below"));

  std::filesystem::resize_file(shard, 151);
  EXPECT_THAT(error_of_job(), HasSubstr("train-00001.bin: at byte 151: the file ends here"));
  EXPECT_THAT(data_error([&] { verify_tokens(folder, ignore_notes); }), HasSubstr("at byte 151"));
  std::filesystem::remove(shard);
  EXPECT_THAT(error_of_job(), HasSubstr("train-00001.bin: No such file"));
  directory_.write("tokens/train-00001.bin", whole);
  EXPECT_NO_THROW(task_of(job(folder)));

  const auto error_with = [&](const char* key, const nlohmann::json& value) {
    auto json = nlohmann::json::parse(to_json(read_token_folder(folder)));
    const std::string before = json.dump();
    json[key] = value;
    directory_.write("tokens/tokens.json", json.dump());
    const std::string error = error_of_job();
    directory_.write("tokens/tokens.json", before);
    return error;
  };
  EXPECT_THAT(error_with("format", 9), HasSubstr("tokens.json: format 9, and this program reads"));
  EXPECT_THAT(error_with("dtype", "int8"), HasSubstr("dtype 'int8' is not uint16 or uint32"));
  EXPECT_THAT(error_with("vocabulary", 7), HasSubstr("a vocabulary of 7, and the tokenizer has"));
  EXPECT_THAT(error_with("train", nlohmann::json::array()), HasSubstr("no file of its training"));
  EXPECT_THAT(error_with("train", {{{"file", "../x"}, {"tokens", 1}, {"xxh3", "0"}}}),
              HasSubstr("'../x' is no file of this folder"));
  EXPECT_THAT(error_with("train", {{{"file", "x"}, {"tokens", 1}, {"xxh3", "?"}}}),
              HasSubstr("a sum that is no number"));
  EXPECT_THAT(error_with("train", 5), HasSubstr("tokens.json: "));
  directory_.write("tokens/tokens.json", std::string("{\"format\": "));
  EXPECT_THAT(error_of_job(), HasSubstr("tokens.json: at byte 11"));
}

TEST_F(TokensTest, AFolderIsMadeOnceAndFromText) {
  const auto data = text();
  tokenized(data, "tokens");
  EXPECT_THAT(error_of([&] { tokenized(data, "tokens"); }, ErrorCode::kIo),
              HasSubstr("it is there already"));
  EXPECT_THAT(data_error([&] { tokenized(directory_.write("short.txt", small_text(9)), "short"); }),
              HasSubstr("at byte 9: the text is"));
  EXPECT_THAT(data_error([&] { tokenized(data, "other", directory_.path() / "absent"); }),
              HasSubstr("absent: there is no vocab.json"));
}

TEST_F(TokensTest, RawFilesOfOtherProgramsNeedATokenizer) {
  const auto folder = tokenized(text(), "tokens");
  const TokenFolder known = read_token_folder(folder);
  const auto tokens = stored_tokens(folder, known.train);
  const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
  std::vector<std::int32_t> header(256);
  header[0] = 20'240'520;
  directory_.write("raw/train.bin", bytes_of(narrow));
  directory_.write("raw/val.bin", bytes_of(header) + bytes_of(narrow));  // as llm.c writes it
  Config config = job(directory_.path() / "raw");
  EXPECT_THAT(data_error([&] { task_of(config); }), HasSubstr("there is no vocab.json"));
  config.text_files = read_text_files(folder);
  const Task task = task_of(config);
  EXPECT_EQ(task.outputs, known.vocabulary);
  EXPECT_EQ(task.data.train->size(), (tokens.size() - 1) / 8);
  for (const auto* part : {task.data.train.get(), task.data.held_out.get()}) {
    EXPECT_EQ(elements_of<std::int32_t>(*part, 2, "tokens"),
              std::vector<std::int32_t>(tokens.begin() + 16, tokens.begin() + 24));
  }
  const std::uint64_t hash = task.data.text_hash;
  directory_.write("raw/val.bin", bytes_of(narrow));
  EXPECT_EQ(task_of(config).data.text_hash, hash);
  const std::vector<std::uint16_t> others(narrow.size(), 7);
  directory_.write("raw/val.bin", bytes_of(others));
  const std::uint64_t other_hash = task_of(config).data.text_hash;
  EXPECT_NE(other_hash, hash);
  directory_.write("raw/train.bin", bytes_of(others));
  EXPECT_NE(task_of(config).data.text_hash, other_hash);
  directory_.write("raw/train.bin", bytes_of(narrow) + "x");
  EXPECT_THAT(data_error([&] { task_of(config); }), HasSubstr("ends within a token of 16 bits"));
}

// Padding and marks are numbered after the tokens, which keep their numbers.
TEST_F(TokensTest, TextsWithMarksBeginWithOneAndHideTokens) {
  const auto folder = tokenized(text(), "tokens");
  const TokenFolder known = read_token_folder(folder);
  const std::vector<std::int32_t> tokens = stored_tokens(folder, known.train);
  const auto size = static_cast<std::int32_t>(known.vocabulary);
  Config config = default_config(built_in_catalog(), "bert");
  config.task = "masked-tokens";
  config.data = folder;
  config.max_length = 9;
  const Task task = task_of(config);
  EXPECT_EQ(task.format().inputs[0].values, known.vocabulary + 3);
  EXPECT_EQ(task.data.text_files.texts, read_text_files(folder).texts);
  ASSERT_EQ(task.data.train->size(), tokens.size() / 100 * 12 + (tokens.size() % 100 - 1) / 8);
  std::size_t hidden_by_mask = 0;
  for (std::size_t i = 0; i < 12; ++i) {
    const auto shown = elements_of<std::int32_t>(*task.data.train, i, "tokens");
    EXPECT_EQ(shown[0], size + 1);
    EXPECT_THAT(elements_of<std::int32_t>(*task.data.train, i, "length"), ElementsAre(9));
    const auto place = elements_of<std::int32_t>(*task.data.train, i, "chosen")[0];
    const auto hidden = elements_of<std::int32_t>(*task.data.train, i, "hidden")[0];
    for (std::size_t j = 1; j < shown.size(); ++j) {
      const std::int32_t stored = tokens[8 * i + j - 1];
      if (static_cast<std::int32_t>(j) != place) {
        EXPECT_EQ(shown[j], stored);
        continue;
      }
      EXPECT_EQ(hidden, stored);
      EXPECT_TRUE(shown[j] == size + 2 || shown[j] < size);
      hidden_by_mask += shown[j] == size + 2 ? 1 : 0;
    }
  }
  EXPECT_GE(hidden_by_mask, 6u);
  config.max_length = 102;
  EXPECT_THAT(data_error([&] { task_of(config); }), HasSubstr("holds a context of 101"));
}

TEST_F(TokensTest, LabelledTextsAreReadAsBytePairs) {
  const auto folder = tokenized(text(), "tokens");
  Config config = default_config(built_in_catalog(), "bert");
  config.text_files = read_text_files(folder);
  config.data = directory_.write("t.csv", "text,label\nthe ring,a\n,b\n" + std::string(18, 'x') +
                                              ",a\nhand,b\nq,a\nr,a\ns,a\nt,a\nu,a\nv,b\n");
  config.max_length = 8;
  const auto tokenizer = make_tokenizer(config.text_files);
  const auto size = static_cast<std::int32_t>(tokenizer->size());
  for (const bool has_marks : {true, false}) {
    config.text_marks = has_marks;
    const Task task = task_of(config);
    EXPECT_EQ(task.format().inputs[0].values, tokenizer->size() + (has_marks ? 3 : 1));
    std::vector<std::int32_t> expected = tokenizer->encode("the ring");
    if (has_marks) expected.insert(expected.begin(), size + 1);
    const auto length = static_cast<std::int32_t>(expected.size());
    ASSERT_LT(length, 8);
    expected.resize(8, size);
    EXPECT_EQ(elements_of<std::int32_t>(*task.data.train, 0, "tokens"), expected);
    EXPECT_THAT(elements_of<std::int32_t>(*task.data.train, 0, "length"), ElementsAre(length));
    EXPECT_THAT(elements_of<std::int32_t>(*task.data.train, 1, "length"),
                ElementsAre(has_marks ? 2 : 1));
    EXPECT_THAT(elements_of<std::int32_t>(*task.data.train, 2, "length"), ElementsAre(8));
    EXPECT_EQ(task.data.text_files.texts.count("vocab.json"), 1u);
  }
}

TEST_F(TokensTest, WeightsKeepTheirVocabularies) {
  const auto folder = tokenized(text(), "tokens");
  const TextFiles files = read_text_files(folder);
  ParameterSet parameters(1);
  parameters.add("w", {2}, {.mean = 1.0f});
  const auto file = directory_.path() / "weights.safetensors";
  export_weights(parameters, file, files);
  EXPECT_EQ(vocabularies_of(file).texts, files.texts);
  const auto again = directory_.path() / "again.safetensors";
  export_weights(file, again);
  EXPECT_EQ(vocabularies_of(again).texts, files.texts);
  const std::filesystem::path both[] = {file, again};
  export_average(both, directory_.path() / "mean.safetensors");
  EXPECT_EQ(vocabularies_of(directory_.path() / "mean.safetensors").texts, files.texts);

  export_weights(parameters, folder / "model.safetensors");  // as GPT-2 is published
  EXPECT_EQ(vocabularies_of(folder / "model.safetensors").texts, files.texts);
  export_weights(parameters, file);
  EXPECT_TRUE(vocabularies_of(file).empty());

  std::filesystem::create_directories(directory_.path() / "run/step-00000001");
  write_text_files(files, directory_.path() / "run/tokenizer");
  EXPECT_EQ(vocabularies_of(directory_.path() / "run/step-00000001").texts, files.texts);
  EXPECT_EQ(vocabularies_of(directory_.path() / "run/step-00000001/").texts, files.texts);
}

TEST_F(TokensTest, VocabulariesAreReadFromEveryPlaceThatKeepsThem) {
  const auto folder = tokenized(text(), "tokens");
  const TextFiles files = read_text_files(folder);
  ParameterSet parameters(1);
  parameters.add("w", {2}, {.mean = 1.0f});
  const auto file = directory_.path() / "weights.safetensors";
  export_weights(parameters, file, files);
  const auto run = directory_.path() / "run";
  std::filesystem::create_directories(run / "step-00000001");
  write_text_files(files, run / "tokenizer");
  for (const auto& place : {folder, file, run, run / "tokenizer", run / "step-00000001"}) {
    EXPECT_EQ(vocabularies_at(place).texts, files.texts) << place;
  }
  std::filesystem::remove_all(run / "tokenizer");
  EXPECT_TRUE(vocabularies_at(run / "step-00000001").empty());
  EXPECT_THAT(data_error([&] { vocabularies_at(directory_.path() / "absent"); }),
              HasSubstr("absent"));
}

}  // namespace
}  // namespace kolo::trainer
