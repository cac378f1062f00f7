// The data set of film ratings in the files of MovieLens.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "trainer/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/files.h"
#include "trainer/errors.h"
#include "trainer/table/table.h"

namespace kolo::trainer {
namespace {

/// Numbers of users or items, by their ids in the file.
using Numbers = std::map<std::int64_t, std::int32_t>;

Numbers number_ids(const Table& table, const std::string& name) {
  const std::size_t column = table.column(name);
  Numbers numbers;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    numbers.emplace(table.number<std::int64_t>(row, column), 0);
  }
  std::int32_t next = 1;
  for (auto& [id, number] : numbers) number = next++;
  return numbers;
}

std::vector<std::int32_t> translate(const Table& table, const std::string& name,
                                    const Numbers& numbers) {
  const std::size_t column = table.column(name);
  std::vector<std::int32_t> translated;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const auto found = numbers.find(table.number<std::int64_t>(row, column));
    translated.push_back(found == numbers.end() ? 0 : found->second);
  }
  return translated;
}

/// The field of ratings, with mean and standard deviation, which is 1 if all ratings are equal.
Field rating_field(const std::vector<float>& ratings) {
  double sum = 0.0;
  double squares = 0.0;
  for (const float rating : ratings) {
    sum += double{rating};
    squares += double{rating} * double{rating};
  }
  const auto count = static_cast<double>(ratings.size());
  const double mean = sum / count;
  const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
  return {.name = "rating",
          .dtype = DType::kFloat32,
          .mean = mean,
          .deviation = deviation > 0.0 ? deviation : 1.0};
}

/// A data set of users' ratings of items, from columns of a table.
///
/// Format: the inputs "user" and "item", int32, numbered from 1 in the order of their ids, or 0 if
///         the id has no number; the target "rating", float32, with mean and standard deviation.
class RatingDataset final : public Dataset {
 public:
  struct Columns {
    std::string user = "userId";
    std::string item = "movieId";
    std::string rating = "rating";
  };

  /// Gives numbers to the users and items of `table`.
  /// Errors: KoloError(kData) naming file and line of a value that is not a number.
  RatingDataset(const Table& table, const Columns& columns)
      : RatingDataset(table, columns, number_ids(table, columns.user),
                      number_ids(table, columns.item)) {}
  /// Uses the numbers of `known`, the training data.
  RatingDataset(const Table& table, const Columns& columns, const RatingDataset& known)
      : RatingDataset(table, columns, known.user_numbers_, known.item_numbers_) {}

  std::size_t size() const override { return ratings_.size(); }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override {
    check(index < size(), "a rating is copied by its index");
    inputs[0].as<std::int32_t>()[0] = users_[index];
    inputs[1].as<std::int32_t>()[0] = items_[index];
    targets[0].as<float>()[0] = ratings_[index];
  }

 private:
  RatingDataset(const Table& table, const Columns& columns, Numbers users, Numbers items)
      : user_numbers_(std::move(users)),
        item_numbers_(std::move(items)),
        users_(translate(table, columns.user, user_numbers_)),
        items_(translate(table, columns.item, item_numbers_)) {
    if (table.rows.empty()) throw_data_error(table.file, "there are no ratings");
    const std::size_t column = table.column(columns.rating);
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
      const double rating = table.number<double>(row, column);
      if (std::abs(rating) > std::numeric_limits<float>::max()) {
        table.fail(row, "the rating is beyond float32");
      }
      ratings_.push_back(static_cast<float>(rating));
    }
    format_ = {
        .inputs = {{.name = "user", .dtype = DType::kInt32, .values = user_numbers_.size() + 1},
                   {.name = "item", .dtype = DType::kInt32, .values = item_numbers_.size() + 1}},
        .targets = {rating_field(ratings_)}};
  }

  Numbers user_numbers_;
  Numbers item_numbers_;
  SampleFormat format_;
  std::vector<std::int32_t> users_;
  std::vector<std::int32_t> items_;
  std::vector<float> ratings_;
};

DataSplit load_movielens(const Config& config) {
  constexpr std::size_t kEvery = 10;
  const TableSplit tables = hold_out(read_delimited(config.data / "ratings.csv"), kEvery);
  auto train = std::make_unique<RatingDataset>(tables.train, RatingDataset::Columns{});
  auto held_out =
      std::make_unique<RatingDataset>(tables.held_out, RatingDataset::Columns{}, *train);
  return {.train = std::move(train), .held_out = std::move(held_out)};
}

}  // namespace

DatasetEntry movielens_entry() {
  return {.name = "movielens",
          .task = "rating",
          .help =
              "a directory with ratings.csv of columns userId, movieId and rating; every tenth row "
              "is held out",
          .accepts =
              [](const std::filesystem::path& directory) {
                return is_there(directory / "ratings.csv");
              },
          .load = load_movielens};
}

}  // namespace kolo::trainer
