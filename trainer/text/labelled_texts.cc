// Data sets of labelled texts: TREC, SST-2, SMS Spam Collection, IMDB, and tables of other origin.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xxhash.h>

#include "comm/base/check.h"
#include "trainer/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/files.h"
#include "trainer/errors.h"
#include "trainer/table/table.h"
#include "trainer/text/tokenizer.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {
namespace {

/// Name of the file with the classes.
constexpr const char* kClassesFile = "classes.json";

/// A table of texts with labels, and which columns hold these.
struct LabelledTexts {
  Table table;
  std::size_t text_column;
  std::size_t label_column;

  std::vector<std::string> column(std::size_t index) const {
    std::vector<std::string> values;
    for (const std::vector<std::string>& row : table.rows) values.push_back(row.at(index));
    return values;
  }

  /// The hash of all texts and labels, after others of which `hash` is the hash.
  std::uint64_t hash_after(std::uint64_t hash) const {
    for (const std::vector<std::string>& row : table.rows) {
      for (const std::size_t column : {text_column, label_column}) {
        hash = XXH3_64bits_withSeed(row.at(column).data(), row.at(column).size(), hash);
      }
    }
    return hash;
  }
};

/// A data set of texts, as numbered words or other tokens, each with a class.
///
/// Format: the input "tokens", int32 [max_length] with entries of the vocabulary: [CLS] if it has
///         marks, the first tokens of a text, then padding; the input "length", int32, the number
///         of tokens before padding; the target "label", int32 below the number of classes. A text
///         without tokens has `TextVocabulary::no_token`.
class LabelledTextDataset final : public Dataset {
 public:
  /// `classes` are the labels in the order of their numbers. Errors: KoloError(kData) naming file
  /// and line of a label that is not one of them.
  LabelledTextDataset(const LabelledTexts& texts, const TextVocabulary& vocabulary,
                      const std::vector<std::string>& classes, std::size_t max_length)
      : format_(text_format(vocabulary, max_length)), padding_(vocabulary.padding()), begins_{0} {
    format_.targets = {{.name = "label", .dtype = DType::kInt32, .values = classes.size()}};
    const std::size_t marks = vocabulary.marks() ? 1 : 0;
    check(max_length > marks, "a text has room for a word");
    for (std::size_t row = 0; row < texts.table.rows.size(); ++row) {
      const std::vector<std::string>& values = texts.table.rows[row];
      const std::string& label = values.at(texts.label_column);
      const auto found = std::ranges::find(classes, label);
      if (found == classes.end()) {
        texts.table.fail(row, "label '" + label + "' does not occur in the training data");
      }
      labels_.push_back(static_cast<std::int32_t>(found - classes.begin()));
      std::vector<std::int32_t> tokens = vocabulary.encode(values.at(texts.text_column));
      tokens.resize(std::clamp(tokens.size(), std::size_t{1}, max_length - marks),
                    vocabulary.no_token());
      if (marks > 0) tokens_.push_back(vocabulary.marks()->text);
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
      begins_.push_back(tokens_.size());
    }
  }

  std::size_t size() const override { return labels_.size(); }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override {
    check(index < size(), "a sample of a data set of texts is copied by its index");
    const std::span<std::int32_t> tokens = inputs[0].as<std::int32_t>();
    const auto text =
        std::span(tokens_).subspan(begins_[index], begins_[index + 1] - begins_[index]);
    std::fill(std::copy(text.begin(), text.end(), tokens.begin()), tokens.end(), padding_);
    inputs[1].as<std::int32_t>()[0] = static_cast<std::int32_t>(text.size());
    targets[0].as<std::int32_t>()[0] = labels_[index];
  }

 private:
  SampleFormat format_;
  std::int32_t padding_;
  std::vector<std::int32_t> tokens_;  // tokens of all texts, without padding
  std::vector<std::size_t> begins_;   // offset of each text, then the end of the last
  std::vector<std::int32_t> labels_;
};

std::vector<std::string> find_classes(const LabelledTexts& train, const TextFiles& stored) {
  if (const std::string* json = stored.find(kClassesFile)) {
    return from_numbered_json(*json, stored.path(kClassesFile));
  }
  std::vector<std::string> classes = train.column(train.label_column);
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  if (classes.size() < 2) {
    throw_data_error(train.table.file, "all texts have the label '" + classes.front() + "'");
  }
  return classes;
}

/// Makes training and held-out data with the same classes: those of `stored` or, if it has none,
/// the labels of the training data in byte order. The text files of the result are the classes and
/// the vocabulary.
/// Errors: KoloError(kData) naming the file if there are no rows or only one label; those of
///         LabelledTextDataset and `from_numbered_json`.
DataSplit make_labelled_texts(const LabelledTexts& train, const LabelledTexts& held_out,
                              std::shared_ptr<const TextVocabulary> vocabulary,
                              std::size_t max_length, const TextFiles& stored) {
  for (const LabelledTexts* part : {&train, &held_out}) {
    if (part->table.rows.empty()) throw_data_error(part->table.file, "there are no texts");
  }
  const std::vector<std::string> classes = find_classes(train, stored);
  const auto part = [&](const LabelledTexts& texts) {
    return std::make_unique<LabelledTextDataset>(texts, *vocabulary, classes, max_length);
  };
  TextFiles files = vocabulary->files();
  files.texts.emplace(kClassesFile, to_numbered_json(classes));
  return {.train = part(train),
          .held_out = part(held_out),
          .vocabulary = std::move(vocabulary),
          .text_hash = held_out.hash_after(train.hash_after(0)),
          .text_files = std::move(files)};
}

namespace fs = std::filesystem;

using ReadTable = std::function<Table(const Config& config, const fs::path& file)>;

LabelledTexts by_name(Table table, const std::string& text, const std::string& label) {
  const std::size_t text_column = table.column(text);
  const std::size_t label_column = table.column(label);
  return {.table = std::move(table), .text_column = text_column, .label_column = label_column};
}

DataSplit make_split(const Config& config, TableSplit tables, const std::string& text = "text",
                     const std::string& label = "label") {
  const LabelledTexts train = by_name(std::move(tables.train), text, label);
  // If some of the model's weights are new, it may have other classes.
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

/// Reads lines "COARSE:fine question" in ISO-8859-1; the coarse class is the label.
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

/// Whether the training file begins with "0" or "1" and a tab, which is a review and not a header.
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
