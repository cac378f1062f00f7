#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/table/table.h"

namespace kolo::trainer {

/// Ratings that users gave to items, from columns of a table.
///
/// Format: "user" and "item", int32, numbered from 1 in the order of their ids in the file, 0 for
///         those that `Numbers` does not know; "rating", float32, with mean and deviation.
class RatingDataset final : public Dataset {
 public:
  struct Columns {
    std::string user = "userId";
    std::string item = "movieId";
    std::string rating = "rating";
  };

  /// Users or items by their id in the file.
  using Numbers = std::map<std::int64_t, std::int32_t>;

  /// Numbers the users and items of `table`.
  /// Errors: KoloError(kData) naming file, and line of a value that is no number.
  RatingDataset(const Table& table, const Columns& columns);
  /// Numbers those of `table` as `known` does, from which the model learns.
  RatingDataset(const Table& table, const Columns& columns, const RatingDataset& known);

  std::size_t size() const override { return ratings_.size(); }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

 private:
  RatingDataset(const Table& table, const Columns& columns, Numbers users, Numbers items);

  Numbers user_numbers_;
  Numbers item_numbers_;
  SampleFormat format_;
  std::vector<std::int32_t> users_;
  std::vector<std::int32_t> items_;
  std::vector<float> ratings_;
};

}  // namespace kolo::trainer
