#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/base/check.h"
#include "comm/base/dtype.h"
#include "trainer/tensor.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

/// One tensor that every sample has: an image, its label, the tokens of a text.
struct Field {
  std::string name;
  DType dtype = DType::kFloat32;  ///< kUInt8, kInt32 or kFloat32.
  Shape shape = {};               ///< Shape of one sample; empty: a single element.
  /// Integers are below this: the number of classes of a label, or of entries of a vocabulary. 0:
  /// any value.
  std::size_t values = 0;
  /// Statistics of all elements of the data set, for models that normalise them.
  double mean = 0.0;
  double deviation = 1.0;

  /// Whether elements of one field can replace those of the other.
  bool is_like(const Field& other) const {
    return name == other.name && dtype == other.dtype && shape == other.shape &&
           values == other.values;
  }
  std::size_t elements() const { return element_count(shape); }
  std::size_t bytes() const { return elements() * size_of(dtype); }
};

/// The class number of a row without a target; see SoftmaxCrossEntropy.
inline constexpr std::int32_t kNoTarget = -1;

/// The tensors of a sample: inputs of the model, and targets of the loss.
struct SampleFormat {
  std::vector<Field> inputs;
  std::vector<Field> targets;
};

/// Whether samples of one format can replace those of the other: they have the same names, dtypes,
/// shapes and ranges.
inline bool is_compatible(const SampleFormat& a, const SampleFormat& b) {
  const auto is_like = [](const Field& one, const Field& other) { return one.is_like(other); };
  return std::ranges::equal(a.inputs, b.inputs, is_like) &&
         std::ranges::equal(a.targets, b.targets, is_like);
}

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::kUInt8;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::kInt32;
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
}

/// A view of elements whose dtype is known at run time. `Byte` is std::byte if they are written and
/// const std::byte if they are read.
template <typename Byte>
class TypedSpan {
 public:
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  TypedSpan(DType dtype, std::span<Byte> bytes) : dtype_(dtype), bytes_(bytes) {}
  /// Views a whole vector, array or span.
  template <std::ranges::contiguous_range R>
  requires(!std::is_same_v<std::remove_cvref_t<R>, TypedSpan>)
      TypedSpan(R&& elements)  // NOLINT: converts as a span does
      : dtype_(dtype_of<std::ranges::range_value_t<R>>()),
        bytes_(reinterpret_cast<Byte*>(std::ranges::data(elements)),
               std::ranges::size(elements) * sizeof(std::ranges::range_value_t<R>)) {}

  DType dtype() const { return dtype_; }
  std::span<Byte> bytes() const { return bytes_; }

  /// Errors: UsageError unless T is the type of the elements.
  template <typename T>
  std::span<Element<T>> as() const {
    check(dtype_of<T>() == dtype_, "a tensor of a batch is read as the type that it has");
    return {reinterpret_cast<Element<T>*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  DType dtype_;
  std::span<Byte> bytes_;
};

/// A tensor of a batch: samples back to back.
using TensorView = TypedSpan<const std::byte>;
/// Memory for a tensor of one sample.
using TensorSlot = TypedSpan<std::byte>;

/// One rank's samples of one pass, in memory of the loader.
struct Batch {
  std::vector<TensorView> inputs = {};   ///< Always a full batch; zeros after the last sample.
  std::vector<TensorView> targets = {};  ///< Targets of the real samples only.
  std::size_t samples = 0;         ///< Real samples; fewer than a batch at the end of an epoch.
  std::size_t rank_samples = 0;    ///< Real samples of this rank in this step, over all passes.
  std::size_t global_samples = 0;  ///< Real samples of all ranks in this step.
  bool leaves_out_ranks = false;   ///< Some rank has no samples in this step.
  std::uint64_t epoch = 0;
  std::uint64_t first_position = 0;  ///< Position of the first sample in the order of the epoch.
};

/// Samples of one format by index.
///
/// Immutable. Threads: any.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Number of samples.
  virtual std::size_t size() const = 0;
  virtual const SampleFormat& format() const = 0;

  /// Writes sample `index` as it is in `epoch`: random changes depend on both and on nothing else.
  /// Before: index < size(); `inputs` and `targets` follow `format()`.
  virtual void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
                    std::span<const TensorSlot> targets) const = 0;
};

class TextVocabulary;

/// The training samples and the held-out samples, in one format.
struct DataSplit {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> held_out;
  /// Vocabulary of texts that are read whole; null if samples are not such texts.
  std::shared_ptr<const TextVocabulary> vocabulary = nullptr;
  /// Turns the tokens of samples into text and back; null if samples are not text.
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  /// Vocabularies with which the samples were made; a model trained on them needs these files.
  TextFiles text_files = {};
};

struct Config;

/// A data format that --data can name.
struct DatasetEntry {
  std::string name;  ///< Choice for --format.
  std::string task;  ///< The task that the data is for.
  std::string help;  ///< The files, in a few words.

  /// Whether `path` looks like this format; --format auto takes the first that matches.
  std::function<bool(const std::filesystem::path& path)> accepts;

  /// Reads config.data. Errors: KoloError(kData) naming file and offset or line.
  std::function<DataSplit(const Config& config)> load;

  /// See `TaskEntry::reads`.
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

/// A subset of another data set's samples, at equal distances.
class EvenlySpread final : public Dataset {
 public:
  /// `all` outlives it. Before: count <= all.size().
  EvenlySpread(const Dataset& all, std::size_t count) : all_(all), count_(count) {}

  std::size_t size() const override { return count_; }
  const SampleFormat& format() const override { return all_.format(); }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override {
    all_.copy(index * all_.size() / count_, epoch, inputs, targets);
  }

 private:
  const Dataset& all_;
  std::size_t count_;
};

/// One rank's part of one global step: positions [begin, begin + count) of the epoch's order, out
/// of `global_count` positions that all ranks take together.
struct ShardPart {
  std::size_t begin;
  std::size_t count;  ///< May be 0 in the last step of an epoch.
  std::size_t global_count;
  bool leaves_out_ranks;  ///< Some rank has no position.
};

/// What happens in the last step of an epoch, which may have fewer samples than the others.
enum class Uneven {
  kPad,   ///< Parts differ by at most one sample, and are filled up with rows that do not count.
  kDrop,  ///< The step is skipped.
  kJoin,  ///< The first ranks get whole parts; ranks without samples join (`Group::join`).
};

/// Distributes an epoch's samples over ranks: global step t takes positions [t·N·B, (t+1)·N·B), and
/// rank r takes the r-th B of them. The last step takes the rest:
///
///     10 samples, 2 ranks, batch 3:   step 0: 0 1 2 | 3 4 5    step 1: 6 7 | 8 9      (pad)
///                                                                      6 7 8 | 9      (join)
///                                                                      none           (drop)
///
/// Every rank has the same number of steps, so no rank waits forever; no sample occurs twice, and
/// the samples of a step do not depend on the number of ranks that share it.
class Sharding {
 public:
  /// Before: all numbers greater than 0.
  Sharding(std::size_t samples, std::size_t ranks, std::size_t batch, Uneven uneven = Uneven::kPad)
      : samples_(samples), ranks_(ranks), batch_(batch), uneven_(uneven) {}

  /// kDrop: 0 if there are fewer samples than a step takes.
  std::size_t steps() const {
    const std::size_t whole = samples_ / global_batch();
    return uneven_ == Uneven::kDrop || samples_ % global_batch() == 0 ? whole : whole + 1;
  }

  /// Before: step < steps(), rank < ranks.
  ShardPart part(std::size_t step, std::size_t rank) const {
    const std::size_t begin = step * global_batch();
    const std::size_t left = samples_ - begin;
    if (left >= global_batch()) return {begin + rank * batch_, batch_, global_batch(), false};
    const bool leaves_out_ranks = left <= samples_before(ranks_ - 1, left);
    const std::size_t before = samples_before(rank, left);
    return {begin + before, samples_before(rank + 1, left) - before, left, leaves_out_ranks};
  }

 private:
  std::size_t global_batch() const { return ranks_ * batch_; }
  /// Samples of the first `ranks` ranks in a last step of `left` samples.
  std::size_t samples_before(std::size_t ranks, std::size_t left) const {
    if (uneven_ == Uneven::kJoin) return std::min(left, ranks * batch_);
    return ranks * (left / ranks_) + std::min(ranks, left % ranks_);
  }

  std::size_t samples_;
  std::size_t ranks_;
  std::size_t batch_;
  Uneven uneven_;
};

}  // namespace kolo::trainer
