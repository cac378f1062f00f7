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

/// Describes how another program's files name and store the weights of a model.
struct WeightLayout {
  /// Name and orientation of a parameter of the model in a file of this layout.
  struct Place {
    std::string name;
    bool is_transposed = false;  ///< Whether the file stores the transpose of the model's matrix.
  };
  /// A tensor `name` that equals the tensor `of`. A file may omit `name`, and a model may lack it.
  struct Alias {
    std::string name;
    std::string of;
    std::string remedy;  ///< Option with which the model has both tensors, for errors.
  };

  std::string name;    ///< Name of the layout, the value of --layout.
  std::string help;    ///< Short description for users.
  std::string prefix;  ///< Prefix of all names, which some files omit.
  std::vector<Alias> aliases;
  /// Names of parameters without which a model cannot be written in this layout.
  std::vector<std::string> needed;
  /// Returns the place of a model's parameter, with prefix; empty if the layout has none.
  std::function<std::optional<Place>(const std::string& parameter)> place_of;
  /// Returns whether a file's tensor of this name is not a weight. `name` has no prefix.
  std::function<bool(std::string_view name)> is_ignored;
};

class Device;
class Tokenizer;
struct Config;

/// A network that maps a batch of fixed size to the numbers that a loss evaluates.
///
/// Threads: one.
class Model {
 public:
  explicit Model(std::uint64_t seed) : parameters_(seed) {}
  virtual ~Model() = default;

  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }

  /// Computes the output, [rows, outputs], for the inputs of a batch. The output is valid until the
  /// next `forward`; the inputs must stay valid until `backward` returns.
  virtual std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) = 0;

  /// Computes the contributions to the gradients of all parameters from the gradient of the output.
  /// `ParameterSet::on_gradient_ready` reports complete gradients, last layer first.
  virtual void backward(std::span<const float> output_gradient) = 0;

 private:
  ParameterSet parameters_;
};

/// The settings from which a model is made.
struct ModelSetting {
  const Config& config;
  const SampleFormat& format;
  std::size_t outputs;                   ///< Numbers per output row: number of classes or tokens,
                                         ///< or 1.
  std::size_t batch;                     ///< Number of samples per batch.
  const Tokenizer* tokenizer = nullptr;  ///< Tokenizer of the inputs; null if they are not text.
  RankSums sum_over_ranks = {};          ///< Set if statistics cover the samples of all ranks.
};

/// A size of a model that users can choose with --shape.
struct ModelShape {
  std::string name;
  /// Sets the options that give the model this size, and those with which this size learns well.
  std::function<void(Config& config)> set;
};

/// A model that users can choose with --model.
struct ModelEntry {
  std::string name;
  std::string task;  ///< Name of its default task.
  std::string help;  ///< Short description for users.

  /// Sets the options with which this model learns well.
  std::function<void(Config& config)> set_defaults;

  /// Makes the network on the processor. `device` outlives the network; `setting` may be destroyed.
  /// Errors: KoloError(kConfig) or UsageError if the network does not fit the samples.
  std::function<std::unique_ptr<Model>(const ModelSetting& setting, Device& device)> make;

  /// Generates config.sample_bytes of text that continue config.prompt, with a model of these
  /// weights. Null if the model generates no text. Before: `setting` has a tokenizer.
  std::function<std::string(const ModelSetting& setting, const ParameterSet& weights)> generate =
      {};

  std::vector<ModelShape> shapes = {};
  std::vector<WeightLayout> layouts = {};  ///< Layouts of files from which weights can be imported.

  /// Options, such as "--dropout", that this model reads and others may not. Giving an option that
  /// nothing in the job reads is an error.
  std::vector<std::string> reads = {};
};

}  // namespace kolo::trainer
