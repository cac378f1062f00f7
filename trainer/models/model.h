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

/// How files of other programs name and store the weights of a model.
struct WeightLayout {
  /// Where such a file has a weight.
  struct Place {
    std::string name;
    bool is_transposed = false;  ///< A matrix: its rows are the columns of the model's.
  };
  /// A tensor that a file may lack, or have although the model does not: then it equals another.
  struct Alias {
    std::string name;
    std::string of;
    std::string remedy;  ///< Option with which the model has both.
  };

  std::string name;    ///< For --layout.
  std::string help;    ///< In a few words.
  std::string prefix;  ///< Begins names in some of these files and not in others.
  std::vector<Alias> aliases;
  /// Parameters without which a model cannot be stored so.
  std::vector<std::string> needed;
  /// The place of a parameter of the model, with prefix; empty if the layout has none.
  std::function<std::optional<Place>(const std::string& parameter)> place_of;
  /// Whether files have such a tensor that is no weight. `name` comes without prefix.
  std::function<bool(std::string_view name)> is_ignored;
};

class Device;
class Tokenizer;
struct Config;

/// A network from the inputs of a batch of fixed size to numbers that a loss judges.
///
/// Threads: one.
class Model {
 public:
  explicit Model(std::uint64_t seed) : parameters_(seed) {}
  virtual ~Model() = default;

  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }

  /// Shape: `inputs` are those of a batch; the result is [rows, outputs], with as many rows per
  ///        sample as the task has. Valid until the next forward; the inputs must stay valid until
  ///        `backward` returns.
  virtual std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) = 0;

  /// Adds the contributions to the gradients of all parameters, from the gradient of the output.
  /// Each is reported by `ParameterSet::on_gradient_ready`, starting with the last layer.
  virtual void backward(std::span<const float> output_gradient) = 0;

 private:
  ParameterSet parameters_;
};

/// What a model is made for.
struct ModelSetting {
  const Config& config;
  const SampleFormat& format;
  std::size_t outputs;                   ///< Numbers in a row of the output: classes, tokens, or 1.
  std::size_t batch;                     ///< Samples.
  const Tokenizer* tokenizer = nullptr;  ///< Of the tokens; null where they are not of a text.
  RankSums sum_over_ranks = {};          ///< Set where statistics are those of all ranks' samples.
};

/// A size of a model that --shape can name.
struct ModelShape {
  std::string name;
  /// Changes the options that give the model this shape, and with them what it then needs to learn
  /// well.
  std::function<void(Config& config)> set;
};

/// A kind of model that --model can name.
struct ModelEntry {
  std::string name;
  std::string task;  ///< The task that it solves unless --task says otherwise.
  std::string help;  ///< In a few words.

  /// Changes the options that this model needs to learn well without further options.
  std::function<void(Config& config)> set_defaults;

  /// Makes the network on the processor. `device` outlives it, the setting need not.
  /// Errors: KoloError(kConfig) or UsageError if it does not fit the samples.
  std::function<std::unique_ptr<Model>(const ModelSetting& setting, Device& device)> make;

  /// Continues config.prompt with config.sample_bytes of text, by a model of these weights. Null
  /// where the model makes no text. Before: the setting has a tokenizer.
  std::function<std::string(const ModelSetting& setting, const ParameterSet& weights)> generate =
      {};

  std::vector<ModelShape> shapes = {};
  std::vector<WeightLayout> layouts = {};  ///< Of files that it can take weights from.

  /// Options that not every model reads, as "--dropout". One that nothing in a job reads is an
  /// error.
  std::vector<std::string> reads = {};
};

}  // namespace kolo::trainer
