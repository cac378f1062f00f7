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
  /// The model has the parameters of the set `shared`, or, if that is null, a set of its own with
  /// initial values by `seed`. `shared` outlives the model.
  explicit Model(std::uint64_t seed, ParameterSet* shared = nullptr)
      : own_parameters_(seed), parameters_(shared == nullptr ? own_parameters_ : *shared) {}
  virtual ~Model() = default;

  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }

  /// Computes the output, [rows, outputs], for the inputs of a batch. The output is valid until the
  /// next `forward`; the inputs must stay valid until `backward` returns.
  virtual std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) = 0;

  /// Computes the contributions to the gradients of all parameters from the gradient of the output.
  /// `ParameterSet::on_gradient_ready` reports complete gradients, last layer first.
  virtual void backward(std::span<const float> output_gradient) = 0;

  // The following members serve models that are split. On a later stage of a pipeline, the only
  // input of `forward` is the output of the stage before it.

  /// The number of elements of the input of a later stage.
  virtual std::size_t stage_inputs() const { return 0; }
  /// The gradient of the input of a later stage, valid after `backward`.
  virtual std::span<const float> input_gradient() const { return {}; }
  /// The table that the first and the last stage of a pipeline share, or null if there is none or
  /// this is another stage. It is a parameter of the first stage, which adds up the gradients of
  /// both stages; the last stage has a copy.
  virtual Parameter* shared_table() { return nullptr; }
  /// Whether each rank has only its part of the outputs; see SoftmaxCrossEntropy::Options::ranks.
  virtual bool deals_out_outputs() const { return false; }

 private:
  ParameterSet own_parameters_;
  ParameterSet& parameters_;
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
  TensorRanks tensor = {};               ///< Ranks that divide the layers among them.
  Stage stage = {};                      ///< This rank's range of the blocks.
  ParameterSet* parameters = nullptr;    ///< Set that models share; null: the model has its own.
};

/// The limits within which ranks can divide a model; see --mesh.
struct ModelDeal {
  std::size_t blocks;  ///< Number of blocks, the largest number of pipeline stages.
  std::size_t pieces;  ///< Number of pieces of a block, a multiple of the number of tensor ranks.
  std::string option;  ///< Name of the option that sets `pieces`.
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

  /// Returns the limits within which ranks can divide the model. Null if the model cannot be split.
  std::function<ModelDeal(const Config& config)> deal = {};

  std::vector<ModelShape> shapes = {};
  std::vector<WeightLayout> layouts = {};  ///< Layouts of files from which weights can be imported.

  /// Options, such as "--dropout", that this model reads and others may not. Giving an option that
  /// nothing in the job reads is an error.
  std::vector<std::string> reads = {};
};

}  // namespace kolo::trainer
