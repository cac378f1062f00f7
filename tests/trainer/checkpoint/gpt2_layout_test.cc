#include "trainer/models/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/trainer/small_data.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/stored_weights.h"
#include "trainer/compute/device.h"

namespace kolo::trainer {
namespace {

using testing::HasSubstr;

const Gpt::Options kShape{.sequences = 1,
                          .context = 3,
                          .tokens = 5,
                          .model = {.layers = 2, .width = 4, .heads = 2},
                          .seed = 1};

class Gpt2LayoutTest : public testing::Test {
 protected:
  Gpt2LayoutTest() { fill(model_.parameters()); }

  /// Gives every element of every parameter, including biases, a different value.
  static void fill(ParameterSet& parameters) {
    float next = 1.0f;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      for (float& value : parameters[i].value()) value = next++;
    }
  }

  void write_gpt2(ParameterSet& parameters) {
    export_weights(parameters, ours_);
    export_weights(ours_, theirs_, gpt2_layout());
  }

  /// Writes the layout's file again. `change` changes each tensor; the tensors `more` are added.
  void rewrite(const std::function<void(StoredTensor&)>& change,
               const std::vector<StoredTensor>& more = {}) {
    const std::filesystem::path file = directory_.path() / "changed";
    const SafetensorsFile read(theirs_);
    std::vector<StoredTensor> tensors = read.tensors();
    for (StoredTensor& tensor : tensors) change(tensor);
    tensors.insert(tensors.end(), more.begin(), more.end());
    write_safetensors(file, tensors, {});
    std::filesystem::rename(file, theirs_);
  }

  void import(ParameterSet& parameters) {
    const std::vector<WeightLayout> layouts = {gpt2_layout()};
    import_weights(theirs_, parameters, layouts);
  }

  void expect_import_of_model(Gpt::Options options = kShape) {
    options.seed = 99;
    Gpt other(device_, options);
    import(other.parameters());
    EXPECT_EQ(other.parameters().hash(), model_.parameters().hash());
  }

  static void keep(StoredTensor&) {}

  TemporaryDirectory directory_;
  std::filesystem::path ours_ = directory_.path() / "ours";
  std::filesystem::path theirs_ = directory_.path() / "theirs";
  Device device_;
  Gpt model_{device_, kShape};
};

TEST_F(Gpt2LayoutTest, AnExportHasTheNamesAndShapesOfGpt2) {
  write_gpt2(model_.parameters());
  const SafetensorsFile file(theirs_);
  EXPECT_EQ(file.tensors().size(), 2u + 2 * 12 + 2);
  const auto shape_of = [&](const char* name) {
    const StoredTensor* tensor = file.find(name);
    return tensor == nullptr ? Shape{} : tensor->shape;
  };
  EXPECT_EQ(shape_of("transformer.wte.weight"), (Shape{5, 4}));
  EXPECT_EQ(shape_of("transformer.wpe.weight"), (Shape{3, 4}));
  EXPECT_EQ(shape_of("transformer.h.1.attn.c_attn.weight"), (Shape{4, 12}));
  EXPECT_EQ(shape_of("transformer.h.1.attn.c_attn.bias"), (Shape{12}));
  EXPECT_EQ(shape_of("transformer.h.0.mlp.c_fc.weight"), (Shape{4, 16}));
  EXPECT_EQ(shape_of("transformer.h.0.mlp.c_proj.weight"), (Shape{16, 4}));
  EXPECT_EQ(shape_of("transformer.ln_f.weight"), (Shape{4}));
  // The shape is [inputs, outputs]: output 2 of input 1 is element 1 · 12 + 2 in the file, and
  // element 2 · 4 + 1 in the model.
  std::vector<float> values(48);
  const StoredWeights weights(theirs_);
  weights.copy(*weights.find("transformer.h.0.attn.c_attn.weight"), values);
  for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
    Parameter& parameter = model_.parameters()[i];
    if (parameter.name() != "block0.query_key_value.weight") continue;
    EXPECT_EQ(values[1 * 12 + 2], parameter.value()[2 * 4 + 1]);
  }
}

TEST_F(Gpt2LayoutTest, AnImportTakesItWithAndWithoutPrefix) {
  write_gpt2(model_.parameters());
  expect_import_of_model();
  rewrite([](StoredTensor& tensor) { tensor.name = tensor.name.substr(12); });
  EXPECT_NE(SafetensorsFile(theirs_).find("wte.weight"), nullptr);
  expect_import_of_model();
}

TEST_F(Gpt2LayoutTest, MasksOfAttentionAreLeft) {
  write_gpt2(model_.parameters());
  const std::vector<std::byte> mask(9);
  rewrite(keep, {{"transformer.h.0.attn.bias", "BOOL", {1, 1, 3, 3}, mask},
                 {"transformer.h.1.attn.masked_bias", "U8", {1}, std::span(mask).first(1)}});
  expect_import_of_model();
}

TEST_F(Gpt2LayoutTest, AnOutputTableOfItsOwnTravelsToo) {
  Gpt::Options options = kShape;
  options.model.tied = false;
  Gpt untied(device_, options);
  fill(untied.parameters());
  write_gpt2(untied.parameters());
  EXPECT_NE(SafetensorsFile(theirs_).find("lm_head.weight"), nullptr);
  Gpt other(device_, options);
  import(other.parameters());
  EXPECT_EQ(other.parameters().hash(), untied.parameters().hash());
  // A model with tied tables cannot load two different tables.
  EXPECT_THAT(data_error([&] { import(model_.parameters()); }),
              HasSubstr("'lm_head.weight' is not equal to 'transformer.wte.weight', which this "
                        "model takes for both; --tied off gives it both"));
}

TEST_F(Gpt2LayoutTest, WithoutAnOutputTableItIsTheEmbeddings) {
  write_gpt2(model_.parameters());
  Gpt::Options options = kShape;
  options.model.tied = false;
  Gpt untied(device_, options);
  import(untied.parameters());
  ParameterSet& parameters = untied.parameters();
  const Parameter& output = parameters[parameters.size() - 1];
  ASSERT_EQ(output.name(), "output.weight");
  EXPECT_THAT(output.value(), testing::ElementsAreArray(std::as_const(parameters[0]).value()));
  // The file of a model with tied tables may contain the table twice.
  const SafetensorsFile file(theirs_);
  const StoredTensor& table = *file.find("transformer.wte.weight");
  const std::vector<std::byte> bytes(table.bytes.begin(), table.bytes.end());
  rewrite(keep, {{"lm_head.weight", "F32", table.shape, bytes}});
  expect_import_of_model();
}

TEST_F(Gpt2LayoutTest, ErrorsNameTensorAndShape) {
  write_gpt2(model_.parameters());
  Gpt::Options wider = kShape;
  wider.model.width = 8;
  Gpt other(device_, wider);
  EXPECT_THAT(data_error([&] { import(other.parameters()); }),
              HasSubstr("'transformer.wte.weight' has shape [5, 4], and this model's has [5, 8]"));
  Gpt::Options deeper = kShape;
  deeper.model.layers = 3;
  Gpt deep(device_, deeper);
  EXPECT_THAT(data_error([&] { import(deep.parameters()); }),
              HasSubstr("it has no 'transformer.h.2.ln_1.weight'"));
  rewrite([](StoredTensor& tensor) { tensor.name = tensor.name.substr(12); });
  EXPECT_THAT(data_error([&] { import(deep.parameters()); }),
              HasSubstr("it has no 'h.2.ln_1.weight'"));
  write_gpt2(model_.parameters());
  Gpt::Options flatter = kShape;
  flatter.model.layers = 1;
  Gpt flat(device_, flatter);
  EXPECT_THAT(data_error([&] { import(flat.parameters()); }),
              HasSubstr("this model has no 'transformer.h.1."));
  Gpt::Options rotary = kShape;
  rotary.model.positions = "rotary";
  Gpt turned(device_, rotary);
  EXPECT_THAT(data_error([&] { import(turned.parameters()); }),
              HasSubstr("this model has no 'transformer.wpe.weight'"));
  // A transposed weight, as in other layouts, is an error that names both shapes.
  rewrite([](StoredTensor& tensor) {
    if (tensor.name.ends_with("h.0.attn.c_attn.weight")) tensor.shape = {12, 4};
  });
  EXPECT_THAT(data_error([&] { import(model_.parameters()); }),
              HasSubstr("'transformer.h.0.attn.c_attn.weight' has shape [12, 4], and this model's "
                        "has [4, 12]"));
}

TEST_F(Gpt2LayoutTest, WeightsThatItCannotHoldAreNotExported) {
  Gpt::Options options = kShape;
  options.model.positions = "rotary";
  Gpt rotary(device_, options);
  EXPECT_THAT(data_error([&] { write_gpt2(rotary.parameters()); }),
              HasSubstr("it has no 'embedding.position', which the layout gpt2 needs"));
  model_.parameters().add("more", {1}, {});
  EXPECT_THAT(data_error([&] { write_gpt2(model_.parameters()); }),
              HasSubstr("the layout gpt2 has no place for 'more'"));
}

TEST_F(Gpt2LayoutTest, AWeightThatIsNoMatrixIsNotExported) {
  export_weights(model_.parameters(), ours_);
  const SafetensorsFile read(ours_);
  std::vector<StoredTensor> tensors = read.tensors();
  for (StoredTensor& tensor : tensors) {
    if (tensor.name == "block0.query_key_value.weight") tensor.shape = {48};
  }
  const std::filesystem::path flat = directory_.path() / "flat";
  write_safetensors(flat, tensors, {});
  EXPECT_THAT(data_error([&] { export_weights(flat, theirs_, gpt2_layout()); }),
              HasSubstr("'block0.query_key_value.weight' has 1 dimensions"));
}

}  // namespace
}  // namespace kolo::trainer
