#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"

namespace kolo::trainer {

struct Config;

/// A kind of data that --data can name.
struct DatasetEntry {
  std::string name;  ///< Choice of --format.
  std::string task;  ///< The task whose data it is.
  std::string help;  ///< The files, in a few words.

  /// Whether `path` looks like this kind; --format auto takes the first that does.
  std::function<bool(const std::filesystem::path& path)> accepts;

  /// Reads config.data. Errors: KoloError(kData) naming file and offset or line.
  std::function<DataSplit(const Config& config)> load;

  /// As `TaskEntry::reads`.
  std::vector<std::string> reads = {};
};

DatasetEntry mnist_entry();
DatasetEntry cifar10_entry();
DatasetEntry optdigits_entry();
DatasetEntry movielens_entry();
DatasetEntry trec_entry();
DatasetEntry sst2_entry();
DatasetEntry sms_spam_entry();
DatasetEntry imdb_entry();
DatasetEntry csv_entry();
DatasetEntry tsv_entry();
DatasetEntry jsonl_entry();
DatasetEntry tokens_entry();
DatasetEntry text_entry();
DatasetEntry words_entry();

}  // namespace kolo::trainer
