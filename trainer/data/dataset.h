#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/base/check.h"
#include "comm/base/dtype.h"
#include "trainer/random.h"
#include "trainer/tensor.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

/// Describes a tensor that every sample has, such as an image, a label or the tokens of a text.
struct Field {
  std::string name;
  DType dtype = DType::kFloat32;  ///< kUInt8, kInt32 or kFloat32.
  Shape shape = {};               ///< Shape in one sample; empty: a single element.
  /// Integers are below this: number of classes or vocabulary entries. 0: any value.
  std::size_t values = 0;
  /// Mean and standard deviation of all elements in the data set, with which models normalise them.
  double mean = 0.0;
  double deviation = 1.0;

  /// Whether the two fields have the same name, dtype, shape and range.
  bool is_like(const Field& other) const {
    return name == other.name && dtype == other.dtype && shape == other.shape &&
           values == other.values;
  }
  std::size_t elements() const { return element_count(shape); }
  std::size_t bytes() const { return elements() * size_of(dtype); }
};

/// The class number that marks a row without a target; see SoftmaxCrossEntropy.
inline constexpr std::int32_t kNoTarget = -1;

/// The tensors of a sample: the inputs of the model and the targets of the loss.
struct SampleFormat {
  std::vector<Field> inputs;
  std::vector<Field> targets;
};

/// Whether two formats have the same tensors in the same order, as `Field::is_like` compares them.
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

/// A view of elements whose dtype is known at run time. `Byte` is std::byte for a writable view and
/// const std::byte for a read-only one.
template <typename Byte>
class TypedSpan {
 public:
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  TypedSpan(DType dtype, std::span<Byte> bytes) : dtype_(dtype), bytes_(bytes) {}
  /// A view of all elements of a vector, array or span.
  template <std::ranges::contiguous_range R>
  requires(!std::is_same_v<std::remove_cvref_t<R>, TypedSpan>)
      TypedSpan(R&& elements)  // NOLINT: converts as a span does
      : dtype_(dtype_of<std::ranges::range_value_t<R>>()),
        bytes_(reinterpret_cast<Byte*>(std::ranges::data(elements)),
               std::ranges::size(elements) * sizeof(std::ranges::range_value_t<R>)) {}

  DType dtype() const { return dtype_; }
  std::span<Byte> bytes() const { return bytes_; }

  /// The elements as values of type T. Errors: UsageError unless T is their type.
  template <typename T>
  std::span<Element<T>> as() const {
    check(dtype_of<T>() == dtype_, "a tensor of a batch is read as the type that it has");
    return {reinterpret_cast<Element<T>*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  DType dtype_;
  std::span<Byte> bytes_;
};

/// A tensor of a batch; its samples follow each other without gaps.
using TensorView = TypedSpan<const std::byte>;
/// Writable memory for a tensor of one sample.
using TensorSlot = TypedSpan<std::byte>;

/// One rank's samples of one backward pass. The tensors are views of the loader's memory.
struct Batch {
  std::vector<TensorView> inputs = {};   ///< A full batch; zeros after the last sample.
  std::vector<TensorView> targets = {};  ///< Targets of the first `samples` samples only.
  std::size_t samples = 0;               ///< Samples without padding, at most the batch size.
  std::size_t rank_samples = 0;          ///< Samples of this rank in this step, over all passes.
  std::size_t global_samples = 0;        ///< Samples of all ranks in this step.
  bool leaves_out_ranks = false;         ///< Whether any rank has no samples in this step.
  std::uint64_t epoch = 0;
  std::uint64_t first_position = 0;  ///< Position of the first sample in the epoch's order.
};

/// A list of samples that all have the same format.
///
/// Immutable. Threads: any.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Number of samples.
  virtual std::size_t size() const = 0;
  virtual const SampleFormat& format() const = 0;

  /// Writes sample `index`, as it is in `epoch`, to `inputs` and `targets`. Random changes of a
  /// sample depend only on index and epoch.
  /// Before: index < size(); `inputs` and `targets` follow `format()`.
  virtual void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
                    std::span<const TensorSlot> targets) const = 0;
};

class TextVocabulary;

/// The training samples and the held-out samples of a data set, in the same format.
struct DataSplit {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> held_out;
  /// Vocabulary of the texts if each sample is a whole text; otherwise null.
  std::shared_ptr<const TextVocabulary> vocabulary = nullptr;
  /// Converts between the tokens of samples and text; null if samples are not text.
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  /// XXH3 of a text, of labelled texts, of tokens or of their sums; 0 if samples are not text.
  std::uint64_t text_hash = 0;
  /// Vocabulary files of the samples' tokens; a model trained on the samples needs them.
  TextFiles text_files = {};
};

struct Config;

/// A data format that users can choose with --format.
struct DatasetEntry {
  std::string name;  ///< Name of the format, the value of --format.
  std::string task;  ///< Name of the task for which the data is meant.
  std::string help;  ///< Short description of the files.

  /// Returns whether `path` looks like this format; --format auto takes the first that does.
  std::function<bool(const std::filesystem::path& path)> accepts;

  /// Reads the data set at config.data. Errors: KoloError(kData) naming file and offset or line.
  std::function<DataSplit(const Config& config)> load;

  /// Options that this format reads; see `TaskEntry::reads`.
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

/// A data set of `count` samples of another data set: one of each of `count` equal stretches, at a
/// place that depends on nothing but its number, so that no regular order of the samples biases it.
class EvenlySpread final : public Dataset {
 public:
  /// `all` outlives this object. Before: count <= all.size().
  EvenlySpread(const Dataset& all, std::size_t count) : all_(all), count_(count) {}

  std::size_t size() const override { return count_; }
  const SampleFormat& format() const override { return all_.format(); }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override {
    const std::size_t begin = index * all_.size() / count_;
    const std::size_t end = (index + 1) * all_.size() / count_;
    all_.copy(begin + Random(0, index).below(end - begin), epoch, inputs, targets);
  }

 private:
  const Dataset& all_;
  std::size_t count_;
};

/// One rank's part of a step: positions [begin, begin + count) of the epoch's order, out of
/// `global_count` positions of all ranks.
struct ShardPart {
  std::size_t begin;
  std::size_t count;  ///< Number of positions of this rank; may be 0 in the last step of an epoch.
  std::size_t global_count;
  bool leaves_out_ranks;  ///< Whether any rank has no position in this step.
};

/// How ranks share the last step of an epoch, which may have fewer samples than other steps.
enum class Uneven {
  kPad,   ///< Ranks get equal parts, or parts that differ by one sample; padding fills the batches.
  kDrop,  ///< The step is skipped.
  kJoin,  ///< The first ranks get whole parts; ranks without samples call `Runtime::join`.
};

/// Distributes an epoch's samples over N ranks with batch size B: step t takes positions [t·N·B,
/// (t+1)·N·B) of the epoch's order, and rank r takes the r-th B of them. The last step takes the
/// rest, which ranks share according to `Uneven`:
///
///     10 samples, 2 ranks, batch 3:   step 0: 0 1 2 | 3 4 5    step 1: 6 7 | 8 9      (pad)
///                                                                      6 7 8 | 9      (join)
///                                                                      none           (drop)
///
/// Ranks may take unequal parts of a step. In the last step the parts are then in proportion to
/// those of a full step, except with kJoin.
///
/// Every rank has the same number of steps, so no rank waits forever. No sample occurs twice in an
/// epoch, and the samples of a step depend only on the number of samples in a full step.
class Sharding {
 public:
  /// Before: all numbers are greater than 0.
  Sharding(std::size_t samples, std::size_t ranks, std::size_t batch, Uneven uneven = Uneven::kPad)
      : Sharding(samples, std::vector<std::size_t>(ranks, batch), uneven) {}
  /// Divides steps into unequal parts; `batches` has the number of samples of each rank in a step.
  Sharding(std::size_t samples, const std::vector<std::size_t>& batches,
           Uneven uneven = Uneven::kPad)
      : samples_(samples),
        ranks_(batches.size()),
        is_even_(std::ranges::count(batches, batches.front()) == std::ssize(batches)),
        before_(batches.size() + 1),
        uneven_(uneven) {
    std::partial_sum(batches.begin(), batches.end(), before_.begin() + 1);
  }

  /// The number of steps per epoch; with kDrop, 0 if there are fewer samples than a step takes.
  std::size_t steps() const {
    const std::size_t whole = samples_ / global_batch();
    return uneven_ == Uneven::kDrop || samples_ % global_batch() == 0 ? whole : whole + 1;
  }

  /// The part of rank `rank` in step `step`. Before: step < steps(), rank < ranks.
  ShardPart part(std::size_t step, std::size_t rank) const {
    const std::size_t begin = step * global_batch();
    const std::size_t left = samples_ - begin;
    if (left >= global_batch()) {
      return {begin + before_[rank], before_[rank + 1] - before_[rank], global_batch(), false};
    }
    const bool leaves_out_ranks = left <= samples_before(ranks_ - 1, left);
    const std::size_t before = samples_before(rank, left);
    return {begin + before, samples_before(rank + 1, left) - before, left, leaves_out_ranks};
  }

 private:
  std::size_t global_batch() const { return before_.back(); }
  /// The number of samples that the first `ranks` ranks take in a last step of `left` samples.
  std::size_t samples_before(std::size_t ranks, std::size_t left) const {
    if (uneven_ == Uneven::kJoin) return std::min(left, before_[ranks]);
    if (!is_even_) return left * before_[ranks] / global_batch();
    return ranks * (left / ranks_) + std::min(ranks, left % ranks_);
  }

  std::size_t samples_;
  std::size_t ranks_;
  bool is_even_;
  std::vector<std::size_t> before_;  // by rank, samples of all lower ranks in a full step
  Uneven uneven_;
};

}  // namespace kolo::trainer
