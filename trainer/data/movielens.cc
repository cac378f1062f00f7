// Ratings of films, as MovieLens distributes them.

#include <memory>
#include <utility>

#include "trainer/config.h"
#include "trainer/data/dataset_entry.h"
#include "trainer/data/rating_dataset.h"
#include "trainer/table/delimited_file.h"
#include "trainer/table/split.h"

namespace kolo::trainer {
namespace {

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
                std::error_code ignored;
                return std::filesystem::exists(directory / "ratings.csv", ignored);
              },
          .load = load_movielens};
}

}  // namespace kolo::trainer
