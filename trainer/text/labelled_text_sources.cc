// Data sets of texts with labels: TREC, SST-2, SMS Spam Collection, IMDB, and tables of any origin.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/data_error.h"
#include "trainer/data/dataset_entry.h"
#include "trainer/table/delimited_file.h"
#include "trainer/table/json_lines.h"
#include "trainer/table/split.h"
#include "trainer/table/text_lines.h"
#include "trainer/text/labelled_texts.h"
#include "trainer/text/load_vocabulary.h"

namespace kolo::trainer {
namespace {

namespace fs = std::filesystem;

using ReadTable = std::function<Table(const Config& config, const fs::path& file)>;

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored);
}

bool is_there_plain_or_packed(const fs::path& file) {
  return is_there(file) || is_there(file.string() + ".gz");
}

fs::path find_plain_or_packed(const fs::path& file) {
  if (is_there(file)) return file;
  const fs::path packed = file.string() + ".gz";
  if (is_there(packed)) return packed;
  throw_data_error(file, "no such file, with or without .gz");
}

LabelledTexts by_name(Table table, const std::string& text, const std::string& label) {
  const std::size_t text_column = table.column(text);
  const std::size_t label_column = table.column(label);
  return {.table = std::move(table), .text_column = text_column, .label_column = label_column};
}

DataSplit make_split(const Config& config, TableSplit tables, const std::string& text = "text",
                     const std::string& label = "label") {
  const LabelledTexts train = by_name(std::move(tables.train), text, label);
  // A model that begins new, whole or in part, may have other classes.
  const bool has_classes = !config.weights.empty() && config.weights_part == "all";
  return make_labelled_texts(train, by_name(std::move(tables.held_out), text, label),
                             load_vocabulary(config, train.column(train.text_column)),
                             config.max_length, has_classes ? config.text_files : TextFiles{});
}

std::string utf8_from_latin1(const std::string& text) {
  std::string utf8;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      utf8.push_back(c);
    } else {
      utf8.push_back(static_cast<char>(0xC0 | byte >> 6));
      utf8.push_back(static_cast<char>(0x80 | (byte & 0x3F)));
    }
  }
  return utf8;
}

/// Lines "COARSE:fine question" in ISO-8859-1, labelled with the coarse class.
Table read_trec(const fs::path& file) {
  Table table = read_labelled_lines(file, ' ');
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    std::string& label = table.rows[row][0];
    const std::size_t colon = label.find(':');
    if (colon == std::string::npos) table.fail(row, "no colon in the label '" + label + "'");
    label.resize(colon);
    table.rows[row][1] = utf8_from_latin1(table.rows[row][1]);
  }
  return table;
}

DataSplit load_trec(const Config& config) {
  return make_split(config, {.train = read_trec(config.data / "train_5500.label"),
                             .held_out = read_trec(config.data / "TREC_10.label")});
}

DataSplit load_sst2(const Config& config) {
  return make_split(config,
                    {.train = read_labelled_lines(config.data / "stsa.binary.train", ' '),
                     .held_out = read_labelled_lines(config.data / "stsa.binary.test", ' ')});
}

DataSplit load_sms(const Config& config) {
  constexpr std::size_t kEvery = 5;
  return make_split(config,
                    hold_out(read_labelled_lines(config.data / "SMSSpamCollection", '\t'), kEvery));
}

/// Whether the training file begins with "0" or "1" and a tab: a review, and not a header.
bool has_imdb(const fs::path& directory) {
  if (!is_there_plain_or_packed(directory / "train.tsv")) return false;
  const Table table = read_lines(find_plain_or_packed(directory / "train.tsv"));
  if (table.rows.empty()) return false;
  const std::string& first = table.rows[0][0];
  return first.starts_with("0\t") || first.starts_with("1\t");
}

DataSplit load_imdb(const Config& config) {
  const auto part = [&](const char* name) {
    return read_labelled_lines(find_plain_or_packed(config.data / name), '\t');
  };
  return make_split(config, {.train = part("train.tsv"), .held_out = part("test.tsv")});
}

DataSplit load_tables(const Config& config, const std::string& extension, const ReadTable& read) {
  constexpr std::size_t kEvery = 10;
  const auto part = [&](const char* name) {
    return read(config, find_plain_or_packed(config.data / (name + extension)));
  };
  std::error_code ignored;
  TableSplit tables = fs::is_directory(config.data, ignored)
                          ? TableSplit{.train = part("train"), .held_out = part("test")}
                          : hold_out(read(config, config.data), kEvery);
  return make_split(config, std::move(tables), config.text_column, config.label_column);
}

DatasetEntry table_entry(const std::string& name, const std::string& help, const ReadTable& read) {
  const std::string extension = "." + name;
  std::vector<std::string> options = word_options();
  options.insert(options.end(), {"--text-column", "--label-column"});
  return {.name = name,
          .task = "text-classification",
          .help = help + ": a directory with train" + extension + " and test" + extension +
                  ", or a file, of which every tenth row is held out; each plain or .gz",
          .accepts =
              [=](const fs::path& path) {
                const std::string file = path.filename().string();
                return file.ends_with(extension) || file.ends_with(extension + ".gz") ||
                       is_there_plain_or_packed(path / ("train" + extension));
              },
          .load = [=](const Config& config) { return load_tables(config, extension, read); },
          .reads = std::move(options)};
}

DatasetEntry directory_entry(const std::string& name, const std::string& file,
                             const std::string& help,
                             const std::function<DataSplit(const Config& config)>& load) {
  return {.name = name,
          .task = "text-classification",
          .help = "a directory with " + help,
          .accepts = [=](const fs::path& directory) { return is_there(directory / file); },
          .load = load,
          .reads = word_options()};
}

}  // namespace

DatasetEntry trec_entry() {
  return directory_entry("trec", "train_5500.label",
                         "train_5500.label and TREC_10.label, which is held out", load_trec);
}

DatasetEntry sst2_entry() {
  return directory_entry("sst2", "stsa.binary.train",
                         "stsa.binary.train and stsa.binary.test, which is held out", load_sst2);
}

DatasetEntry sms_spam_entry() {
  return directory_entry("sms-spam", "SMSSpamCollection",
                         "SMSSpamCollection, of which every fifth line is held out", load_sms);
}

DatasetEntry imdb_entry() {
  return {.name = "imdb",
          .task = "text-classification",
          .help =
              "a directory with train.tsv and test.tsv, plain or .gz, of lines with 0 or 1, a tab "
              "and a review",
          .accepts = has_imdb,
          .load = load_imdb,
          .reads = word_options()};
}

DatasetEntry csv_entry() {
  return table_entry(
      "csv", "comma-separated values below a header",
      [](const Config&, const fs::path& file) { return read_delimited(file, kCsv); });
}

DatasetEntry tsv_entry() {
  return table_entry(
      "tsv", "tab-separated values below a header",
      [](const Config&, const fs::path& file) { return read_delimited(file, kTsv); });
}

DatasetEntry jsonl_entry() {
  return table_entry("jsonl", "JSON objects, one a line",
                     [](const Config& config, const fs::path& file) {
                       return read_json_lines(file, {config.text_column, config.label_column});
                     });
}

}  // namespace kolo::trainer
