#include "trainer/table/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/trainer/small_data.h"
#include "trainer/data/files.h"

namespace kolo::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Rows = std::vector<std::vector<std::string>>;

class TableTest : public testing::Test {
 protected:
  Table csv(const std::string& text, const DelimitedFormat& format = kCsv) const {
    return read_delimited(directory_.write("t.csv", text), format);
  }
  std::string csv_error(const std::string& text) const {
    return data_error([&] { csv(text); });
  }

  TemporaryDirectory directory_;
};

TEST_F(TableTest, QuotesHoldSeparatorsLineBreaksAndQuotes) {
  const Table table =
      csv("id,title\r\n1,\"Heat, or \"\"The Heat\"\"\"\r\n2,\"two\nlines\"\r\n3,\"\"");
  EXPECT_THAT(table.columns, ElementsAre("id", "title"));
  EXPECT_EQ(table.rows, (Rows{{"1", "Heat, or \"The Heat\""}, {"2", "two\nlines"}, {"3", ""}}));
  EXPECT_THAT(table.lines, ElementsAre(2, 3, 5));
  EXPECT_EQ(table.column("title"), 1u);
}

TEST_F(TableTest, LinesMayEndEitherWayAndTheLastOneNotAtAll) {
  const Rows rows = {{"1", ""}, {"", "4"}};
  for (const char* text : {"a,b\n1,\n,4\n", "a,b\r\n1,\r\n,4\r\n", "a,b\n1,\n,4",
                           "\xEF\xBB\xBF"
                           "a,b\n1,\n,4"}) {
    const Table table = csv(text);
    EXPECT_THAT(table.columns, ElementsAre("a", "b"));
    EXPECT_EQ(table.rows, rows) << text;
  }
}

TEST_F(TableTest, TabSeparatedValuesKnowNoQuotes) {
  EXPECT_EQ(csv("a\tb\n\"x\tsaid \"y\"\n", kTsv).rows, (Rows{{"\"x", "said \"y\""}}));
}

TEST_F(TableTest, WithoutAHeaderColumnsHaveNumbers) {
  const Table table = csv("5,6\n7,8\n", {.has_header = false});
  EXPECT_THAT(table.columns, ElementsAre("1", "2"));
  EXPECT_EQ(table.rows, (Rows{{"5", "6"}, {"7", "8"}}));
}

TEST_F(TableTest, MistakesNameFileAndLine) {
  EXPECT_THAT(csv_error(""), HasSubstr("t.csv: line 1: the line that names the columns"));
  EXPECT_THAT(csv_error("a,b\n1,2\n3\n"), HasSubstr("t.csv: line 3: 1 fields in place of 2"));
  EXPECT_THAT(csv_error("a,b\n\"x\ny\",2\n1,2,3\n"), HasSubstr("line 4: 3 fields in place of 2"));
  EXPECT_THAT(csv_error("a,b\n1,2\n3,\"4\n5,6\n"), HasSubstr("line 3: the quotes do not end"));
  EXPECT_THAT(csv_error("a,b\n1,\"2\"x\n"), HasSubstr("line 2: text after the quotes"));
  EXPECT_THAT(csv_error("a,b\n1,2\"x\n"), HasSubstr("line 2: a quote in a field"));
  EXPECT_THAT(data_error([&] { csv("a,b\n").column("c"); }),
              HasSubstr("t.csv: there is no column 'c'; the columns are a, b"));
  EXPECT_THAT(data_error([] { read_delimited("/nonexistent/t.csv"); }),
              HasSubstr("/nonexistent/t.csv"));
}

TEST_F(TableTest, NumbersAreWholeFields) {
  const Table table = csv("a,b\n12,0.5\n12x,nan\n,1e999\n");
  EXPECT_EQ(table.number<std::int64_t>(0, 0), 12);
  EXPECT_EQ(table.number<double>(0, 1), 0.5);
  EXPECT_THAT(data_error([&] { table.number<std::int64_t>(1, 0); }),
              HasSubstr("t.csv: line 3: '12x' in column a is not a whole number"));
  EXPECT_THAT(data_error([&] { table.number<double>(1, 1); }),
              HasSubstr("line 3: 'nan' in column b is not a number"));
  EXPECT_THAT(data_error([&] { table.number<std::int64_t>(2, 0); }), HasSubstr("line 4: ''"));
  EXPECT_THAT(data_error([&] { table.number<double>(2, 1); }), HasSubstr("line 4: '1e999'"));
}

TEST_F(TableTest, JsonLinesGiveTextAndNumbersByName) {
  const auto file = directory_.write(
      "t.jsonl", std::string("{\"label\": 1, \"text\": \"so \\\"good\\\"\", \"x\": [1]}\n\n"
                             "{\"text\": \"\\u00e9\", \"label\": \"neg\"}"));
  const Table table = read_json_lines(file, {"text", "label"});
  EXPECT_EQ(table.rows, (Rows{{"so \"good\"", "1"}, {"\xC3\xA9", "neg"}}));
  EXPECT_THAT(table.lines, ElementsAre(1, 3));
}

TEST_F(TableTest, MistakesInJsonNameFileAndLine) {
  const auto error = [&](const std::string& line) {
    const auto file = directory_.write("t.jsonl", "{\"text\": \"a\"}\n" + line + "\n");
    return data_error([&] { read_json_lines(file, {"text"}); });
  };
  EXPECT_THAT(error("{\"text\": "), HasSubstr("t.jsonl: line 2: this is not JSON, at character"));
  EXPECT_THAT(error("[1]"), HasSubstr("line 2: this is not a JSON object"));
  EXPECT_THAT(error("{\"text\": 1e999}"), HasSubstr("line 2: [json.exception.out_of_range"));
  EXPECT_THAT(error("{\"txt\": \"a\"}"), HasSubstr("line 2: the text or number 'text' is missing"));
  EXPECT_THAT(error("{\"text\": null}"), HasSubstr("line 2: the text or number 'text' is missing"));
  EXPECT_THAT(error("{\"text\": [\"a\"]}"), HasSubstr("line 2: the text or number"));
}

TEST_F(TableTest, LabelsEndAtTheFirstSeparator) {
  const auto file = directory_.write("t", std::string("\xEF\xBB\xBFham\tso\tgood\r\nspam\t\nx"));
  EXPECT_EQ(read_lines(file).rows, (Rows{{"ham\tso\tgood"}, {"spam\t"}, {"x"}}));
  EXPECT_THAT(data_error([&] { read_labelled_lines(file, '\t'); }),
              HasSubstr("t: line 3: no tab after the label"));
  EXPECT_THAT(data_error([&] { read_labelled_lines(file, ' '); }),
              HasSubstr("t: line 1: no space after the label"));
  const auto good = directory_.write("u", std::string("ham\tso\tgood\r\nspam\t\n"));
  EXPECT_EQ(read_labelled_lines(good, '\t').rows, (Rows{{"ham", "so\tgood"}, {"spam", ""}}));
}

TEST_F(TableTest, TheLastOfSomeRowsIsHeldOut) {
  const TableSplit split = hold_out(csv("a\n0\n1\n2\n3\n4\n5\n6\n"), 3);
  EXPECT_EQ(split.train.rows, (Rows{{"0"}, {"1"}, {"3"}, {"4"}, {"6"}}));
  EXPECT_EQ(split.held_out.rows, (Rows{{"2"}, {"5"}}));
  EXPECT_THAT(split.held_out.lines, ElementsAre(4, 7));
  EXPECT_EQ(split.held_out.columns, split.train.columns);
}

TEST_F(TableTest, FilesArePlainOrGzipAndOfAnyLength) {
  std::string text;
  for (int i = 0; i < 400000; ++i) text += std::to_string(i) + "\n";
  EXPECT_EQ(read_text(directory_.write("plain", text)), text);
  const auto packed = write_gzip(directory_, "packed.gz", Bytes(text.begin(), text.end()));
  EXPECT_EQ(read_text(packed), text);
  std::filesystem::resize_file(packed, 1000);
  EXPECT_THAT(data_error([&] { read_text(packed); }), HasSubstr("packed.gz: at byte "));
}

}  // namespace
}  // namespace kolo::trainer
