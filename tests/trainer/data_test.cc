#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/small_data.h"
#include "trainer/catalog.h"
#include "trainer/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/dataset.h"
#include "trainer/data/files.h"
#include "trainer/data/images.h"

namespace kolo::trainer {
namespace {

using testing::HasSubstr;

const Bytes kElements = {1, 2, 3, 4, 5, 6};

TEST(IdxFileTest, ReadsPlainAndGzip) {
  const TemporaryDirectory directory;
  const Bytes bytes = make_idx({1, 2, 3}, kElements);
  for (const auto& file :
       {directory.write("plain", bytes), write_gzip(directory, "packed.gz", bytes)}) {
    const IdxArray array = read_idx(file, 3);
    EXPECT_EQ(array.shape, (Shape{1, 2, 3}));
    EXPECT_EQ(array.bytes, kElements);
  }
}

TEST(IdxFileTest, MissingFileIsNamed) {
  EXPECT_THAT(data_error([] { read_idx("/nonexistent/images", 3); }),
              HasSubstr("/nonexistent/images"));
}

TEST(IdxFileTest, EveryTruncationNamesFileAndOffset) {
  const TemporaryDirectory directory;
  const Bytes whole = make_idx({1, 2, 3}, kElements);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto file = directory.write("cut", cut);
    const std::string text = data_error([&] { read_idx(file, 3); });
    EXPECT_THAT(text, HasSubstr(file.string()));
    EXPECT_THAT(text, HasSubstr("at byte " + std::to_string(size)));
  }
}

TEST(IdxFileTest, TruncatedGzipIsAnError) {
  const TemporaryDirectory directory;
  Bytes noise(5000);
  Random random(3);
  for (auto& byte : noise) byte = static_cast<std::uint8_t>(random.next());
  const auto file = write_gzip(directory, "cut.gz", make_idx({5000}, noise));
  for (const std::uintmax_t size : {3000u, 1000u, 12u}) {
    std::filesystem::resize_file(file, size);
    EXPECT_THAT(data_error([&] { read_idx(file, 1); }), HasSubstr("at byte "));
  }
}

// Each byte of a small file is flipped in turn. The result is either the right shape with other
// elements, or a data error, without a crash and without memory for a size that only the header
// claims.
TEST(IdxFileTest, SurvivesEveryMutation) {
  const TemporaryDirectory directory;
  const Bytes whole = make_idx({1, 2, 3}, kElements);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int mask : {0x01, 0x80, 0xFF}) {
      Bytes mutated = whole;
      mutated[i] = static_cast<std::uint8_t>(mutated[i] ^ mask);
      const auto file = directory.write("mutated", mutated);
      if (i >= 16) {
        EXPECT_EQ(read_idx(file, 3).bytes.size(), kElements.size());
      } else {
        EXPECT_THAT(data_error([&] { read_idx(file, 3); }), HasSubstr("mutated: at byte "));
      }
    }
  }
}

TEST(IdxFileTest, SurvivesEveryMutationOfAGzipStream) {
  const TemporaryDirectory directory;
  const auto file = write_gzip(directory, "packed.gz", make_idx({2, 3}, kElements));
  std::ifstream in(file, std::ios::binary);
  const Bytes whole{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  for (std::size_t i = 0; i < whole.size(); ++i) {
    Bytes mutated = whole;
    mutated[i] ^= 0x10;
    const auto changed = directory.write("mutated.gz", mutated);
    try {
      EXPECT_EQ(read_idx(changed, 2).bytes, kElements);  // for example the time stamp
    } catch (const KoloError& error) {
      EXPECT_EQ(error.error().code, ErrorCode::kData);
    }
  }
}

TEST(IdxFileTest, TrailingBytesAreAnError) {
  const TemporaryDirectory directory;
  Bytes bytes = make_idx({1, 2, 3}, kElements);
  bytes.push_back(0);
  EXPECT_THAT(data_error([&] { read_idx(directory.write("long", bytes), 3); }),
              HasSubstr("has bytes after its 6 elements"));
}

TEST(ImageDatasetTest, LabelOutOfRangeIsNamedWithItsOffset) {
  const TemporaryDirectory directory;
  const auto images = directory.write("images", make_idx({3, 1, 1}, {1, 2, 3}));
  const auto labels = directory.write("labels", make_idx({3}, {9, 10, 0}));
  EXPECT_THAT(data_error([&] { ImageDataset(images, labels, 10); }),
              HasSubstr("labels: at byte 9: label 10 is not below 10"));
}

TEST(ImageDatasetTest, CountsMustAgree) {
  const TemporaryDirectory directory;
  const auto images = directory.write("images", make_idx({3, 1, 1}, {1, 2, 3}));
  const auto labels = directory.write("labels", make_idx({2}, {9, 0}));
  EXPECT_THAT(data_error([&] { ImageDataset(images, labels, 10); }),
              HasSubstr("2 labels for the 3 images"));
}

TEST(ImageDatasetTest, KnowsItsStatistics) {
  const TemporaryDirectory directory;
  const ImageDataset data(directory.write("images", make_idx({2, 1, 2}, {0, 10, 20, 30})),
                          directory.write("labels", make_idx({2}, {1, 2})), 10);
  const Field& image = data.format().inputs[0];
  EXPECT_DOUBLE_EQ(image.mean, 15.0);
  EXPECT_NEAR(image.deviation, 11.18034, 1e-5);
}

/// Returns a CIFAR-10 record. Its red, green and blue are the label plus 10, 20 and 30, except in
/// the second pixel, where they are 1, 2 and 3.
Bytes cifar_record(std::uint8_t label) {
  Bytes record = {label};
  for (std::uint8_t channel = 1; channel <= 3; ++channel) {
    for (int pixel = 0; pixel < 1024; ++pixel) {
      record.push_back(pixel == 1 ? channel : static_cast<std::uint8_t>(label + 10 * channel));
    }
  }
  return record;
}

Bytes cifar_records(const std::vector<std::uint8_t>& labels) {
  Bytes bytes;
  for (const std::uint8_t label : labels) {
    const Bytes record = cifar_record(label);
    bytes.insert(bytes.end(), record.begin(), record.end());
  }
  return bytes;
}

TEST(CifarFileTest, ChannelsOfAPixelComeTogether) {
  const TemporaryDirectory directory;
  const CifarBatch batch = read_cifar(directory.write("batch", cifar_records({3, 9, 4})), 1, 2);
  EXPECT_EQ(batch.labels, Bytes{9});
  ASSERT_EQ(batch.pixels.size(), CifarBatch::kImageBytes);
  EXPECT_EQ(Bytes(batch.pixels.begin(), batch.pixels.begin() + 9),
            (Bytes{19, 29, 39, 1, 2, 3, 19, 29, 39}));
}

TEST(CifarFileTest, MistakesNameFileAndOffset) {
  const TemporaryDirectory directory;
  Bytes cut = cifar_records({3, 9});
  cut.pop_back();
  EXPECT_THAT(data_error([&] { read_cifar(directory.write("cut", cut)); }),
              HasSubstr("cut: at byte 6145: the size is not a multiple of a record of 3073 bytes"));
  EXPECT_THAT(data_error([&] { read_cifar(directory.write("empty", Bytes{})); }),
              HasSubstr("empty: at byte 0"));
  EXPECT_THAT(data_error([&] {
                read_cifar(directory.write("label", cifar_records({3, 10})));
              }),
              HasSubstr("label: at byte 3073: label 10 is not below 10"));
  EXPECT_THAT(data_error([] { read_cifar("/nonexistent/batch"); }),
              HasSubstr("/nonexistent/batch"));
  Config config;
  config.data = directory.path();
  EXPECT_THAT(data_error([&] { cifar10_entry().load(config); }), HasSubstr("data_batch_1.bin"));
}

/// Loads the data of --data PATH for a model, with --format auto.
DataSplit load(const std::string& model, const std::filesystem::path& path,
               std::size_t context = 10) {
  const Catalog catalog = built_in_catalog();
  Config config = default_config(catalog, model);
  config.data = path;
  config.context = context;
  return std::move(make_task(config, catalog).data);
}

/// A sample with one input and one target.
template <typename Input>
struct Sample {
  Sample(const Dataset& data, std::size_t index)
      : input(data.format().inputs[0].elements()), target(data.format().targets[0].elements()) {
    const TensorSlot inputs[] = {input};
    const TensorSlot targets[] = {target};
    data.copy(index, 0, inputs, targets);
  }
  std::vector<Input> input;
  std::vector<std::int32_t> target;
};

TEST(DataSourceTest, OfCifarTheTestFileIsHeldOutOrElseTheLastTenth) {
  const TemporaryDirectory directory;
  directory.write("data_batch_1.bin", cifar_records({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  directory.write("data_batch_2.bin", cifar_records({5, 4, 3, 2, 1, 0, 9, 8, 6, 7}));
  const DataSplit split = load("convnet", directory.path());
  EXPECT_EQ(split.train->size(), 18u);
  ASSERT_EQ(split.held_out->size(), 2u);
  EXPECT_EQ(split.train->format().inputs[0].shape, (Shape{32, 32, 3}));
  EXPECT_EQ(split.train->format().targets[0].values, 10u);
  const Sample<std::uint8_t> sample(*split.held_out, 0);
  EXPECT_EQ(sample.target[0], 6);
  EXPECT_EQ(sample.input[0], 16);
  directory.write("few/data_batch_1.bin", cifar_records({0, 1, 2}));
  EXPECT_THAT(data_error([&] { load("convnet", directory.path() / "few"); }),
              HasSubstr("few: there are no held-out samples"));
  directory.write("test_batch.bin", cifar_records({1, 2, 3}));
  const DataSplit whole = load("convnet", directory.path());
  EXPECT_EQ(whole.train->size(), 20u);
  EXPECT_EQ(whole.held_out->size(), 3u);
}

TEST(DataSourceTest, FilesOfNoKindAreToldWhatIsTaken) {
  const TemporaryDirectory directory;
  const std::string text = data_error([&] { load("mlp", directory.path()); });
  EXPECT_THAT(text, HasSubstr("holds no data for --task image-classification"));
  EXPECT_THAT(text, HasSubstr("train-images-idx3-ubyte"));
  EXPECT_THAT(text, HasSubstr("(--format cifar10)"));
  EXPECT_THAT(data_error([&] { load("gpt", directory.path() / "absent"); }),
              HasSubstr("absent: no such file or directory"));
}

TEST(DataSourceTest, AMissingFileOfAChosenFormatIsNamed) {
  const TemporaryDirectory directory;
  const Catalog catalog = built_in_catalog();
  Config config = default_config(catalog, "mlp");
  config.data = directory.path();
  config.format = "mnist";
  EXPECT_THAT(data_error([&] { make_task(config, catalog); }),
              HasSubstr("train-images-idx3-ubyte"));
}

TEST(DataSourceTest, SamplesOfAnotherTaskAreRefused) {
  const TemporaryDirectory directory;
  const Catalog catalog = built_in_catalog();
  Config config = default_config(catalog, "mlp");
  config.data = directory.write("text", small_text(1000));
  config.format = "text";
  EXPECT_THAT(data_error([&] { make_task(config, catalog); }),
              HasSubstr("--task image-classification needs samples with an image"));
}

TEST(DataSourceTest, SplitsTextNineToOne) {
  const TemporaryDirectory directory;
  const DataSplit data = load("gpt", directory.write("text", small_text(1000)));
  EXPECT_EQ(data.train->size(), 89u);    // (900 - 1) / 10
  EXPECT_EQ(data.held_out->size(), 9u);  // (100 - 1) / 10
  EXPECT_EQ(data.train->format().inputs[0].values, 256u);
  const Sample<std::int32_t> sample(*data.held_out, 1);
  const std::string text = small_text(1000);
  EXPECT_EQ(std::string(sample.input.begin(), sample.input.end()), text.substr(910, 10));
  EXPECT_EQ(std::string(sample.target.begin(), sample.target.end()), text.substr(911, 10));
}

TEST(DataSourceTest, TextTooShortForTheContextIsAnError) {
  const TemporaryDirectory directory;
  const auto file = directory.write("text", small_text(100));
  EXPECT_NO_THROW(load("gpt", file, 9));
  EXPECT_THAT(data_error([&] { load("gpt", file, 10); }), HasSubstr("at byte 100"));
  EXPECT_THAT(data_error([&] { load("gpt", directory.write("empty", Bytes{}), 1); }),
              HasSubstr("empty"));
}

TEST(CorpusTest, ConcatenatesTextFilesInTheOrderOfTheirPaths) {
  const TemporaryDirectory directory;
  directory.write("b.md", std::string("2"));
  directory.write("a/z.cc", std::string("1"));
  directory.write("c/CMakeLists.txt", std::string("3"));
  directory.write("c/run.sh", std::string("4"));
  directory.write("c/picture.png", std::string("x"));
  directory.write(".git/config.txt", std::string("x"));
  directory.write("build/CMakeCache.txt", std::string("x"));
  directory.write("build/made.h", std::string("x"));
  for (const char* outcome :
       {"run/config.toml", "run/metrics.jsonl", "run/tokenizer/bytes.txt", "sweep/sweep.json",
        "sweep/lr=1/log.txt", "tokens/tokens.json", "tokens/merges.txt"}) {
    directory.write(outcome, std::string("x"));
  }
  const auto corpus = Corpus(directory.path());
  EXPECT_EQ(std::string(corpus.bytes().begin(), corpus.bytes().end()), "1234");
}

TEST(CorpusTest, DirectoryWithoutTextAndMissingFileAreErrors) {
  const TemporaryDirectory directory;
  EXPECT_THAT(data_error([&] { Corpus corpus(directory.path()); }), HasSubstr("no text"));
  EXPECT_THAT(data_error([&] { Corpus corpus(directory.path() / "absent"); }), HasSubstr("absent"));
}

/// Samples whose target is their index.
class Counted final : public Dataset {
 public:
  std::size_t size() const override { return 5000; }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t, std::span<const TensorSlot>,
            std::span<const TensorSlot> targets) const override {
    targets[0].as<std::int32_t>()[0] = static_cast<std::int32_t>(index);
  }

 private:
  SampleFormat format_{.inputs = {}, .targets = {{.name = "index", .dtype = DType::kInt32}}};
};

TEST(EvenlySpreadTest, TakesASampleOfEachStretchInNoRegularOrder) {
  const Counted all;
  const auto index_of = [](const Dataset& data, std::size_t sample) {
    std::int32_t index = -1;
    const TensorSlot slot{std::span(&index, 1)};
    data.copy(sample, 0, {}, {&slot, 1});
    return static_cast<std::size_t>(index);
  };
  const EvenlySpread part(all, 50), again(all, 50), whole(all, all.size());
  std::size_t odd = 0;
  for (std::size_t sample = 0; sample < part.size(); ++sample) {
    const std::size_t index = index_of(part, sample);
    EXPECT_EQ(index / 100, sample);
    EXPECT_EQ(index, index_of(again, sample));
    EXPECT_EQ(index_of(whole, sample), sample);
    odd += index % 2;
  }
  EXPECT_GT(odd, 10u);
  EXPECT_LT(odd, 40u);
}

TEST(ShardingTest, EverySampleOnceAndEveryRankTheSameSteps) {
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 5u, 8u}) {
    for (const std::size_t samples : {1u, 2u, 7u, 24u, 25u, 97u}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << samples << " samples");
      const Sharding sharding(samples, ranks, 3);
      std::vector<std::size_t> taken;
      for (std::size_t step = 0; step < sharding.steps(); ++step) {
        std::size_t together = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const ShardPart part = sharding.part(step, rank);
          EXPECT_LE(part.count, 3u);
          together += part.count;
          for (std::size_t i = 0; i < part.count; ++i) taken.push_back(part.begin + i);
          EXPECT_GE(part.count + 1, sharding.part(step, 0).count);
        }
        EXPECT_EQ(together, sharding.part(step, 0).global_count);
      }
      std::vector<std::size_t> all(samples);
      for (std::size_t i = 0; i < samples; ++i) all[i] = i;
      EXPECT_EQ(taken, all);
    }
  }
}

// Samples of the last step are dropped or dealt in whole parts. The last ranks may then get none.
TEST(ShardingTest, UnevenSamplesAreDroppedOrDealtInWholeParts) {
  constexpr std::size_t kBatch = 3;
  for (const std::size_t ranks : {1u, 2u, 3u, 4u, 8u}) {
    for (const std::size_t samples : {1u, 7u, 24u, 25u, 97u}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << samples << " samples");
      const std::size_t global = ranks * kBatch;
      EXPECT_EQ(Sharding(samples, ranks, kBatch, Uneven::kDrop).steps(), samples / global);
      const Sharding joined(samples, ranks, kBatch, Uneven::kJoin);
      EXPECT_EQ(joined.steps(), Sharding(samples, ranks, kBatch).steps());
      std::size_t next = 0;
      for (std::size_t step = 0; step < joined.steps(); ++step) {
        bool leaves_out = false;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const ShardPart part = joined.part(step, rank);
          EXPECT_EQ(part.begin, next);
          EXPECT_EQ(part.count, std::min(kBatch, samples - next));
          next += part.count;
          leaves_out = leaves_out || part.count == 0;
        }
        EXPECT_EQ(joined.part(step, 0).leaves_out_ranks, leaves_out);
      }
      EXPECT_EQ(next, samples);
    }
  }
}

std::vector<std::int32_t> targets_of(const Batch& batch) {
  const auto targets = batch.targets[0].as<std::int32_t>();
  return {targets.begin(), targets.end()};
}

TEST(DataLoaderTest, UnionOfRanksAndPassesIsTheOneRankBatch) {
  const TemporaryDirectory directory;
  const DataSplit data = load("gpt", directory.write("text", small_text(300)), 2);
  constexpr std::uint64_t kSeed = 17;
  DataLoader single(*data.train, {.ranks = 1, .rank = 0, .batch = 12, .seed = kSeed});
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    for (std::size_t step = 0; step < single.steps_per_epoch(); ++step) {
      const Batch whole = single.load(epoch, step);
      EXPECT_EQ(whole.first_position, step * 12);
      std::vector<std::int32_t> targets;
      for (std::size_t rank = 0; rank < 3; ++rank) {
        DataLoader loader(*data.train,
                          {.ranks = 3, .rank = rank, .batch = 2, .accumulation = 2, .seed = kSeed});
        ASSERT_EQ(loader.steps_per_epoch(), single.steps_per_epoch());
        for (std::size_t pass = 0; pass < 2; ++pass) {
          const Batch part = loader.load(epoch, step, pass);
          EXPECT_EQ(part.global_samples, whole.samples);
          EXPECT_EQ(part.first_position, step * 12 + targets.size() / 2);
          EXPECT_EQ(part.inputs[0].as<std::int32_t>().size(), 4u);  // always full
          const std::vector<std::int32_t> mine = targets_of(part);
          EXPECT_EQ(mine.size(), part.samples * 2);
          targets.insert(targets.end(), mine.begin(), mine.end());
        }
      }
      EXPECT_EQ(targets, targets_of(whole));
    }
  }
}

TEST(DataLoaderTest, EpochsHaveOrdersOfTheirOwn) {
  EXPECT_NE(permutation(100, 1, 0), permutation(100, 1, 1));
  EXPECT_NE(permutation(100, 1, 0), permutation(100, 2, 0));
  const auto order = permutation(100, 1, 0);
  EXPECT_EQ(order, permutation(100, 1, 0));
  EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), 100u);
}

}  // namespace
}  // namespace kolo::trainer
