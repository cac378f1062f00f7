#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// How another program's files name and store the weights of a model.
struct WeightLayout {
  /// Where a parameter of the model is stored in a file of this layout.
  struct Place {
    std::string name;
    bool is_transposed = false;  ///< The file's matrix is the transpose of the model's.
  };
  /// A tensor that equals another one (`of`). So a file may lack it, or have it although the model
  /// does not.
  struct Alias {
    std::string name;
    std::string of;
    std::string remedy;  ///< Option with which the model has both tensors.
  };

  std::string name;    ///< For --layout.
  std::string help;    ///< A short description.
  std::string prefix;  ///< Prefix of names, present in some files and absent in others.
  std::vector<Alias> aliases;
  /// Parameters that a model needs for this layout.
  std::vector<std::string> needed;
  /// The place of a parameter of the model, with prefix; empty if the layout has none.
  std::function<std::optional<Place>(const std::string& parameter)> place_of;
  /// Whether a tensor of this name in a file is not a weight. `name` comes without prefix.
  std::function<bool(std::string_view name)> is_ignored;
};

class Device;
class Tokenizer;
struct Config;

/// A network from the inputs of a batch of fixed size to the numbers that a loss evaluates.
///
/// Threads: one.
class Model {
 public:
  explicit Model(std::uint64_t seed) : parameters_(seed) {}
  virtual ~Model() = default;

  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }

  /// Shape: `inputs` are those of a batch; the result is [rows, outputs], with the task's number of
  ///        rows per sample. Valid until the next forward; the inputs must stay valid until
  ///        `backward` returns.
  virtual std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) = 0;

  /// Adds to the gradients of all parameters, given the gradient of the output.
  /// `ParameterSet::on_gradient_ready` reports each gradient, starting with the last layer.
  virtual void backward(std::span<const float> output_gradient) = 0;

 private:
  ParameterSet parameters_;
};

/// The settings that a model is made for.
struct ModelSetting {
  const Config& config;
  const SampleFormat& format;
  std::size_t outputs;                   ///< Numbers per output row: classes, tokens, or 1.
  std::size_t batch;                     ///< Samples per batch.
  const Tokenizer* tokenizer = nullptr;  ///< For token inputs; null if they are not text.
  RankSums sum_over_ranks = {};          ///< Set if statistics cover all ranks' samples.
};

/// A model size that --shape can name.
struct ModelShape {
  std::string name;
  /// Sets the options that give the model this size, and those that it then needs to learn well.
  std::function<void(Config& config)> set;
};

/// A model that --model can name.
struct ModelEntry {
  std::string name;
  std::string task;  ///< Its task unless --task names another.
  std::string help;  ///< A short description.

  /// Sets the options that this model needs to learn well.
  std::function<void(Config& config)> set_defaults;

  /// Makes the network on the processor. `device` outlives it; the setting need not.
  /// Errors: KoloError(kConfig) or UsageError if it does not fit the samples.
  std::function<std::unique_ptr<Model>(const ModelSetting& setting, Device& device)> make;

  /// Continues config.prompt with config.sample_bytes of text, by a model with these weights. Null
  /// if the model generates no text. Before: the setting has a tokenizer.
  std::function<std::string(const ModelSetting& setting, const ParameterSet& weights)> generate =
      {};

  std::vector<ModelShape> shapes = {};
  std::vector<WeightLayout> layouts = {};  ///< Layouts of files that it can import.

  /// Options, such as "--dropout", that only some models read. It is an error to give an option
  /// that nothing in the job reads.
  std::vector<std::string> reads = {};
};

}  // namespace kolo::trainer
