#include "trainer/data/rating_dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/base/check.h"
#include "trainer/data/data_error.h"

namespace kolo::trainer {
namespace {

RatingDataset::Numbers number_ids(const Table& table, const std::string& name) {
  const std::size_t column = table.column(name);
  RatingDataset::Numbers numbers;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    numbers.emplace(table.number<std::int64_t>(row, column), 0);
  }
  std::int32_t next = 1;
  for (auto& [id, number] : numbers) number = next++;
  return numbers;
}

std::vector<std::int32_t> translate(const Table& table, const std::string& name,
                                    const RatingDataset::Numbers& numbers) {
  const std::size_t column = table.column(name);
  std::vector<std::int32_t> translated;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const auto found = numbers.find(table.number<std::int64_t>(row, column));
    translated.push_back(found == numbers.end() ? 0 : found->second);
  }
  return translated;
}

/// With mean and deviation of `ratings`; the deviation is that of constant ratings if they are.
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

}  // namespace

RatingDataset::RatingDataset(const Table& table, const Columns& columns)
    : RatingDataset(table, columns, number_ids(table, columns.user),
                    number_ids(table, columns.item)) {}

RatingDataset::RatingDataset(const Table& table, const Columns& columns, const RatingDataset& known)
    : RatingDataset(table, columns, known.user_numbers_, known.item_numbers_) {}

RatingDataset::RatingDataset(const Table& table, const Columns& columns, Numbers users,
                             Numbers items)
    : user_numbers_(std::move(users)),
      item_numbers_(std::move(items)),
      users_(translate(table, columns.user, user_numbers_)),
      items_(translate(table, columns.item, item_numbers_)) {
  if (table.rows.empty()) throw_data_error(table.file, "there are no ratings");
  const std::size_t column = table.column(columns.rating);
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    ratings_.push_back(static_cast<float>(table.number<double>(row, column)));
  }
  format_ = {
      .inputs = {{.name = "user", .dtype = DType::kInt32, .values = user_numbers_.size() + 1},
                 {.name = "item", .dtype = DType::kInt32, .values = item_numbers_.size() + 1}},
      .targets = {rating_field(ratings_)}};
}

void RatingDataset::copy(std::size_t index, std::uint64_t, std::span<const TensorSlot> inputs,
                         std::span<const TensorSlot> targets) const {
  check(index < size(), "a rating is copied by its index");
  inputs[0].as<std::int32_t>()[0] = users_[index];
  inputs[1].as<std::int32_t>()[0] = items_[index];
  targets[0].as<float>()[0] = ratings_[index];
}

}  // namespace kolo::trainer
