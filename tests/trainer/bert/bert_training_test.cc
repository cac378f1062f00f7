// Whole jobs of the model bert on small data. Ranks are threads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/trainer/training_job.h"
#include "trainer/checkpoint/stored_weights.h"
#include "trainer/tokens/tokenize.h"

namespace kolo::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class BertTrainingTest : public testing::TestWithParam<const char*> {
 protected:
  BertTrainingTest() {
    config_.task = GetParam();
    config_.steps = 20;
    config_.batch = 12;
  }

  /// Makes a tokenizer that knows the words of the texts.
  TextFiles tokens_of_words() const {
    const auto folder = directory_.path() / "tokens";
    tokenize({.data = config_.data, .out = folder, .vocabulary = 290}, [](const std::string&) {});
    return read_text_files(folder);
  }

  TemporaryDirectory directory_;
  Config config_ = small_job("bert", directory_);
};

TEST_P(BertTrainingTest, LossFalls) {
  if (config_.task == "masked-tokens") {  // the words of the text predict each other
    std::string text;
    for (int line = 0; line < 120; ++line) text += small_text(47) + "\n";
    config_.data = directory_.write("text.txt", text);
    config_.format = "words";
  }
  config_.steps = 150;
  const Summary summary = run_ranks(1, config_)[0];
  EXPECT_LT(summary.eval_loss, 0.5 * summary.curve.front().train_loss);
}

// The text is trained as byte pairs instead of words. Its held-out end is tokenized separately, so
// it has other pairs.
TEST_P(BertTrainingTest, LearnsTextsThatAreTokens) {
  if (config_.task == "text-classification") {
    config_.text_files = tokens_of_words();
  } else {
    config_.data = directory_.path() / "tokens";
    config_.format = "auto";
    tokenize({.data = directory_.write("text.txt", small_text(6000)),
              .out = config_.data,
              .vocabulary = 280},
             [](const std::string&) {});
  }
  config_.steps = 150;
  const std::vector<Summary> summaries = run_ranks(2, config_);
  EXPECT_LT(summaries[0].train_loss, 0.5 * summaries[0].curve.front().train_loss);
  EXPECT_EQ(summaries[0].weights_hash, summaries[1].weights_hash);
}

INSTANTIATE_TEST_SUITE_P(Tasks, BertTrainingTest,
                         testing::Values("masked-tokens", "text-classification"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::erase(name, '-');
                           return name;
                         });

class FineTuningTest : public testing::Test {
 protected:
  FineTuningTest() {
    pre_training_.task = "masked-tokens";
    fine_tuning_.text_files = task_of(pre_training_).data.text_files;
    fine_tuning_.weights = directory_.path() / "encoder.safetensors";
    fine_tuning_.weights_part = "shared";
  }
  static Task task_of(const Config& config) { return make_task(config, built_in_catalog()); }

  /// Makes the learner of a job, and passes it to `use`.
  static void with_learner(const Config& config, const std::function<void(Learner&)>& use) {
    const Catalog catalog = built_in_catalog();
    const Task task = task_of(config);
    Runtime runtime = Runtime::from_environment(config.runtime);
    use(*make_learner(config, runtime, task, catalog));
    runtime.close();
  }
  void export_from(const Config& config) {
    with_learner(config, [&](Learner& learner) {
      export_weights(learner.parameters(), fine_tuning_.weights);
    });
  }

  TemporaryDirectory directory_;
  Config pre_training_ = small_job("bert", directory_);
  Config fine_tuning_ = pre_training_;
};

TEST_F(FineTuningTest, TakesTheEncoderAndSaysWhatBeginsNew) {
  pre_training_.seed = 17;
  export_from(pre_training_);
  std::vector<float> table;
  with_learner(pre_training_, [&](Learner& learner) {
    const auto value = learner.parameters()[0].value();
    table.assign(value.begin(), value.end());
  });
  with_learner(fine_tuning_, [&](Learner& learner) {
    EXPECT_EQ(learner.parameters()[0].name(), "embedding.token");
    EXPECT_THAT(learner.parameters()[0].value(), testing::ElementsAreArray(table));
    EXPECT_THAT(learner.origin(), HasSubstr("weights: 16 of "));
    EXPECT_THAT(learner.origin(), HasSubstr("; new: pooler.weight, pooler.bias, "
                                            "classifier.weight, classifier.bias; left: masked."));
  });
  fine_tuning_.weights_part = "all";
  EXPECT_THAT(data_error([&] { with_learner(fine_tuning_, [](Learner&) {}); }),
              HasSubstr("it has no 'pooler.weight'"));
}

TEST_F(FineTuningTest, OtherShapesAreErrorsThatNameTheTensor) {
  pre_training_.width = 16;
  export_from(pre_training_);
  EXPECT_THAT(data_error([&] { with_learner(fine_tuning_, [](Learner&) {}); }),
              HasSubstr("'embedding.token' has shape [40, 16], and this model's has [40, 8]"));
}

TEST_F(FineTuningTest, AFileWithoutAnyOfTheWeightsIsAnError) {
  ParameterSet other(1);
  other.add("w", {2}, {});
  export_weights(other, fine_tuning_.weights);
  EXPECT_THAT(data_error([&] { with_learner(fine_tuning_, [](Learner&) {}); }),
              HasSubstr("it has none of this model's weights"));
}

TEST(SharedWeightsTest, NamesWhatWasTaken) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "w";
  ParameterSet from(1), into(2);
  from.add("both", {2}, {.mean = 3.0f});
  from.add("only_here", {1}, {});
  into.add("new", {1}, {.mean = 5.0f});
  into.add("both", {2}, {});
  export_weights(from, file);
  const SharedWeights shared = import_shared_weights(file, into);
  EXPECT_EQ(shared.taken, 1u);
  EXPECT_THAT(shared.begun_new, ElementsAre("new"));
  EXPECT_THAT(shared.left, ElementsAre("only_here"));
  EXPECT_THAT(into[1].value(), ElementsAre(3.0f, 3.0f));
  EXPECT_THAT(into[0].value(), ElementsAre(5.0f));
  EXPECT_EQ(describe("f", shared), "weights: 1 of f; new: new; left: only_here");
}

}  // namespace
}  // namespace kolo::trainer
