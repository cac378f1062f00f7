// Jobs in mixed precision. Ranks are threads, each with a runtime of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/runtime_job.h"
#include "tests/trainer/training_job.h"
#include "trainer/compute/device.h"
#include "trainer/data/data_loader.h"
#include "trainer/layers/elementwise.h"
#include "trainer/layers/linear.h"
#include "trainer/models/image_models.h"

namespace kolo::trainer {
namespace {

constexpr int kSpikeAt = 3;
// With it, gradients are finite in float32 and far beyond float16.
constexpr float kSpike = 1e10f;

/// A small network. In one backward pass the gradient of its output is too large by far.
class SpikedClassifier final : public ImageClassifier {
 public:
  SpikedClassifier(Device& device, const ImageModelOptions& o, std::optional<int> spike_at)
      : ImageClassifier(o), spike_at_(spike_at) {
    const std::size_t pixels = o.height * o.width * o.channels;
    layers_.append<Linear>(device, parameters(), "fc1",
                           Linear::Options{.rows = o.images,
                                           .inputs = pixels,
                                           .outputs = o.hidden,
                                           .deviation = he_deviation(pixels),
                                           .input_gradient = false});
    layers_.append<Relu>(o.images * o.hidden);
    layers_.append<Linear>(device, parameters(), "fc2",
                           Linear::Options{.rows = o.images,
                                           .inputs = o.hidden,
                                           .outputs = o.classes,
                                           .deviation = he_deviation(o.hidden)});
  }

  void backward(std::span<const float> output_gradient) override {
    gradient_.assign(output_gradient.begin(), output_gradient.end());
    if (pass_++ == spike_at_) {
      for (float& value : gradient_) value *= kSpike;
    }
    ImageClassifier::backward(gradient_);
  }

 private:
  std::optional<int> spike_at_;
  int pass_ = 0;
  std::vector<float> gradient_;
};

Catalog catalog_with_spike(std::optional<int> spike_at) {
  Catalog catalog = built_in_catalog();
  catalog.models.add({.name = "spiked",
                      .task = "image-classification",
                      .help = "",
                      .set_defaults = set_image_defaults,
                      .make =
                          [spike_at](const ModelSetting& setting, Device& device) {
                            return std::make_unique<SpikedClassifier>(
                                device, image_model_options(setting), spike_at);
                          },
                      .generate = nullptr});
  return catalog;
}

/// What a rank sees of one step.
struct Step {
  bool is_skipped;
  float scale_before;
  float scale_after;
  std::uint64_t weights;
};

/// Steps of all ranks, by rank; the last rank spikes.
std::vector<std::vector<Step>> run_spiked(int ranks, int steps, const std::string& precision) {
  const TemporaryDirectory directory;
  write_small_images(directory, 203, 50);
  test::RuntimeJob job(ranks, {.calibrate = "off"});
  std::vector<std::vector<Step>> courses(static_cast<std::size_t>(ranks));
  job.run([&](Runtime& runtime) {
    set_compute_threads(1);
    const bool spikes = runtime.rank() == runtime.world_size() - 1;
    const Catalog catalog = catalog_with_spike(spikes ? std::optional(kSpikeAt) : std::nullopt);
    Config config = default_config(catalog, "spiked");
    config.data = directory.path();
    config.batch = 8;
    config.hidden = 24;
    config.seed = 7;
    config.precision = precision;
    config.loss_scale = "dynamic";
    const Task task = make_task(config, catalog);
    const std::unique_ptr<Learner> learner = make_learner(config, runtime, task, catalog);
    DataLoader loader(*task.data.train, {.ranks = static_cast<std::size_t>(runtime.world_size()),
                                         .rank = static_cast<std::size_t>(runtime.rank()),
                                         .batch = config.batch,
                                         .seed = config.seed});
    for (int step = 0; step < steps; ++step) {
      const float scale = learner->loss_scale();
      const Batch batch = loader.load(0, static_cast<std::size_t>(step));
      learner->forward_backward(batch, static_cast<float>(runtime.world_size()) /
                                           static_cast<float>(batch.global_samples));
      learner->await_averages();
      const UpdateVerdict verdict = learner->clip();
      const bool is_skipped = learner->update(1e-3f, verdict).is_skipped;
      courses[static_cast<std::size_t>(runtime.rank())].push_back(
          {is_skipped, scale, learner->loss_scale(), learner->parameters().hash()});
    }
  });
  return courses;
}

TEST(Float16OverflowTest, OnOneRankMakesAllRanksSkipTheStepAndHalveTheScale) {
  constexpr int kSteps = 6;
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    for (const std::vector<Step>& course : run_spiked(ranks, kSteps, "float16")) {
      for (int i = 0; i < kSteps; ++i) {
        SCOPED_TRACE(i);
        const auto at = static_cast<std::size_t>(i);
        const Step& step = course.at(at);
        EXPECT_EQ(step.is_skipped, i == kSpikeAt);
        EXPECT_EQ(step.scale_after, i == kSpikeAt ? 0.5f * step.scale_before : step.scale_before);
        if (i == 0) continue;
        EXPECT_EQ(step.weights == course[at - 1].weights, i == kSpikeAt);
      }
    }
  }
}

// So it is float16 that overflows.
TEST(Float16OverflowTest, TheSameNumbersAreFiniteInFloat32) {
  for (const std::vector<Step>& course : run_spiked(2, kSpikeAt + 1, "float32")) {
    for (const Step& step : course) EXPECT_FALSE(step.is_skipped);
  }
}

TEST(Float16OverflowTest, RanksKeepTheSameWeightsAndScale) {
  const std::vector<std::vector<Step>> courses = run_spiked(3, 6, "float16");
  for (const std::vector<Step>& course : courses) {
    for (std::size_t i = 0; i < course.size(); ++i) {
      EXPECT_EQ(course[i].weights, courses[0][i].weights) << i;
      EXPECT_EQ(course[i].scale_after, courses[0][i].scale_after) << i;
    }
  }
}

}  // namespace
}  // namespace kolo::trainer
