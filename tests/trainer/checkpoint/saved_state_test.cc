// A saved state restores the values of a snapshot, on the same or another number of ranks.

#include "trainer/checkpoint/saved_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/trainer/small_data.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/stored_weights.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/update_gate.h"

namespace kolo::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A state with every kind of piece. Its values depend on `seed` and rank.
class Pieces : public Stateful {
 public:
  Pieces() = default;
  Pieces(int seed, int rank)
      : weights{1.0f * static_cast<float>(seed), 2.0f, 3.0f, 4.0f},
        bias{0.5f},
        scale(0.25f),
        steps(static_cast<std::uint64_t>(seed)),
        curve(static_cast<std::size_t>(seed), 0.1),
        moment{static_cast<float>(rank)},
        sum(1.0 + rank),
        bytes{std::vector<std::byte>(static_cast<std::size_t>(rank), std::byte{7})} {}

  void visit_state(StateVisitor& visitor) override {
    visitor.shared("weights/w", {2, 2}, weights);
    visitor.shared("weights/b", {1}, bias);
    visitor.shared("scale", scale);
    visitor.shared("steps", steps);
    visitor.shared("curve", curve);
    if (has_own) visitor.own("moment", {1}, moment);
    visitor.part_of_sum("sum", sum);
    visitor.bytes_of_ranks("bytes", bytes);
  }

  std::vector<float> weights = std::vector<float>(4);
  std::vector<float> bias = std::vector<float>(1);
  float scale = 0.0f;
  std::uint64_t steps = 0;
  std::vector<double> curve;
  std::vector<float> moment = std::vector<float>(1);
  double sum = 0.0;
  std::vector<std::vector<std::byte>> bytes;
  bool has_own = true;
};

class SavedStateTest : public testing::Test {
 protected:
  std::filesystem::path save(int ranks, const std::function<void(StateVisitor&, int)>& visit) {
    const RunFolder folder(directory_.path() / "run");
    Manifest manifest{.step = 8, .job = {"toy", {{"--lr", "1"}}}, .eval_loss = 0.5, .files = {}};
    folder.create_partial(8);
    for (int rank = 0; rank < ranks; ++rank) {
      Snapshot snapshot(rank, ranks);
      visit(snapshot, rank);
      const std::string name = rank_file_name(rank);
      manifest.files.push_back(
          {name, write_safetensors(folder.partial(8) / name, snapshot.tensors(), {})});
    }
    folder.publish(manifest);
    return folder.checkpoint(8);
  }
  std::filesystem::path save_pieces(int ranks, bool has_own = true) {
    return save(ranks, [&](StateVisitor& visitor, int rank) {
      Pieces pieces(3, rank);
      pieces.has_own = has_own;
      pieces.visit_state(visitor);
    });
  }
  TemporaryDirectory directory_;
};

TEST_F(SavedStateTest, EveryRankGetsItsStateBack) {
  const auto checkpoint = save_pieces(3);
  for (int rank = 0; rank < 3; ++rank) {
    SavedState saved(checkpoint, rank, 3);
    EXPECT_EQ(saved.manifest().step, 8u);
    Pieces pieces;
    pieces.visit_state(saved);
    saved.require_none(saved.left());
    const Pieces expected(3, rank);
    EXPECT_EQ(pieces.weights, expected.weights);
    EXPECT_EQ(pieces.bias, expected.bias);
    EXPECT_EQ(pieces.scale, expected.scale);
    EXPECT_EQ(pieces.steps, expected.steps);
    EXPECT_EQ(pieces.curve, expected.curve);
    EXPECT_EQ(pieces.moment, expected.moment);
    EXPECT_EQ(pieces.sum, expected.sum);
    EXPECT_EQ(pieces.bytes, expected.bytes);
  }
}

TEST_F(SavedStateTest, RanksShareTheBytesAndSaveEachPieceOnce) {
  const auto checkpoint = save_pieces(3);
  std::vector<std::string> shared;
  for (int rank = 0; rank < 3; ++rank) {
    const SafetensorsFile file(checkpoint / rank_file_name(rank));
    std::size_t pieces = 0;
    for (const StoredTensor& tensor : file.tensors()) {
      if (tensor.name.find("/") != std::string::npos && !tensor.name.starts_with("weights"))
        continue;
      shared.push_back(tensor.name);
      ++pieces;
    }
    EXPECT_GE(pieces, 1u) << rank;
  }
  EXPECT_THAT(shared,
              testing::UnorderedElementsAre("weights/w", "weights/b", "scale", "steps", "curve"));
}

TEST_F(SavedStateTest, AnotherNumberOfRanksSharesSumsAndSeesAllBytes) {
  const auto checkpoint = save_pieces(3, false);
  double sum = 0.0;
  for (int rank = 0; rank < 2; ++rank) {
    SavedState saved(checkpoint, rank, 2);
    EXPECT_TRUE(saved.has_other_ranks());
    Pieces pieces;
    pieces.has_own = false;
    pieces.visit_state(saved);
    EXPECT_EQ(pieces.weights, Pieces(3, rank).weights);
    ASSERT_EQ(pieces.bytes.size(), 3u);
    EXPECT_EQ(pieces.bytes[2].size(), 2u);
    sum += pieces.sum;
  }
  EXPECT_EQ(sum, 1.0 + 2.0 + 3.0);
}

TEST_F(SavedStateTest, OwnStateNeedsAsManyRanks) {
  const auto checkpoint = save_pieces(3);
  SavedState saved(checkpoint, 0, 2);
  Pieces pieces;
  EXPECT_THAT(error_of([&] { pieces.visit_state(saved); }, ErrorCode::kConfig),
              HasSubstr("'moment' is the state of one rank and has no meaning on 2 ranks: resume "
                        "on 3"));
}

TEST_F(SavedStateTest, PiecesThatAreMissingLeftOverOrOfAnotherShapeAreNamed) {
  const auto checkpoint = save_pieces(1);
  SavedState saved(checkpoint, 0, 1);
  std::vector<float> values(6);
  EXPECT_THAT(data_error([&] { saved.shared("weights/w", {6}, values); }),
              HasSubstr("'weights/w' is F32 [2, 2], and this job has F32 [6]"));
  EXPECT_THAT(data_error([&] { saved.shared("weights/x", {6}, values); }),
              HasSubstr("it has no 'weights/x', which this job needs"));
  double number = 0;
  EXPECT_THAT(data_error([&] { saved.shared("scale", number); }), HasSubstr("'scale' is F32 []"));
  EXPECT_THAT(data_error([&] { saved.require_none(saved.left()); }),
              HasSubstr("this job has no '"));
}

TEST_F(SavedStateTest, DamagedFilesAreNamed) {
  const auto checkpoint = save_pieces(2);
  const auto file = checkpoint / rank_file_name(1);
  const auto size = std::filesystem::file_size(file);
  {  // flips one bit of the last number
    std::fstream change(file, std::ios::in | std::ios::out | std::ios::binary);
    change.seekp(static_cast<std::streamoff>(size) - 1);
    change.put('\x55');
  }
  EXPECT_THAT(data_error([&] { SavedState(checkpoint, 1, 2); }),
              testing::AllOf(HasSubstr(file.string()), HasSubstr("its XXH3 sum is")));
  SavedState(checkpoint, 0, 2);  // rank 1 verifies the damaged file
  std::filesystem::resize_file(file, size - 1);
  EXPECT_THAT(data_error([&] { SavedState(checkpoint, 0, 2); }),
              HasSubstr(std::to_string(size - 1) + " bytes, and the manifest says"));
  std::filesystem::remove(file);
  EXPECT_THAT(data_error([&] { SavedState(checkpoint, 0, 2); }), HasSubstr("No such file"));
}

TEST_F(SavedStateTest, BadManifestsAreNamed) {
  const auto checkpoint = save_pieces(1);
  const std::string name = "run/step-00000008/manifest.json";
  const auto error_with = [&](const std::string& text) {
    directory_.write(name, text);
    return data_error([&] { SavedState(checkpoint, 0, 1); });
  };
  const auto good = [](const std::string& format, const std::string& files) {
    return R"({"format": )" + format + R"(, "step": 8, "model": "m", "eval_loss": null,)" +
           R"("settings": {}, "files": [)" + files + "]}";
  };
  EXPECT_THAT(error_with("{"), HasSubstr("manifest.json: at byte 1:"));
  EXPECT_THAT(error_with("{}"), HasSubstr("'format' not found"));
  EXPECT_THAT(error_with(good("2", "")), HasSubstr("format 2, and this program reads format 1"));
  EXPECT_THAT(error_with(good("1", "")), HasSubstr("it names no files"));
  EXPECT_THAT(error_with(good("1", R"({"name": "../x", "bytes": 1, "xxh3": "1"})")),
              HasSubstr("file 0 is '../x', not 'rank-00000.safetensors'"));
  EXPECT_THAT(
      error_with(good("1", R"({"name": "rank-00000.safetensors", "bytes": 1, "xxh3": "z"})")),
      HasSubstr("a sum that is no number"));
  std::filesystem::remove(checkpoint / "manifest.json");
  EXPECT_THAT(data_error([&] { SavedState(checkpoint, 0, 1); }), HasSubstr("No such file"));
  const auto moved = checkpoint.parent_path() / "step-00000009";
  std::filesystem::remove_all(checkpoint);
  std::filesystem::rename(save_pieces(1), moved);
  EXPECT_THAT(data_error([&] { SavedState(moved, 0, 1); }), HasSubstr("it is that of step 8"));
}

TEST_F(SavedStateTest, ExportsTheWeightsOfAllRanks) {
  const auto file = directory_.path() / "weights.safetensors";
  export_weights(save_pieces(3), file);
  const SafetensorsFile read(file);
  ASSERT_EQ(read.tensors().size(), 2u);
  EXPECT_EQ(read.tensors()[0].name, "b");
  EXPECT_EQ(read.tensors()[1].shape, (Shape{2, 2}));

  ParameterSet parameters(1);
  parameters.add("w", {2, 2}, {.mean = 1.0f});
  parameters.add("b", {1}, {.mean = 2.0f});
  export_weights(parameters, file);
  const SafetensorsFile own(file);
  EXPECT_EQ(own.find("b")->bytes.size(), 4u);
  EXPECT_EQ(own.metadata().at("format"), "pt");
}

TEST_F(SavedStateTest, TheUpdateGateKeepsItsScale) {
  const UpdateGate::Options options{.loss_scale = {.mode = LossScaler::Mode::kDynamic,
                                                   .scale = 64.0f,
                                                   .clean_steps_to_double = 3}};
  UpdateGate gate(options);
  EXPECT_FALSE(gate.record(true));
  EXPECT_FALSE(gate.record(false));
  const auto checkpoint = save(1, [&](StateVisitor& visitor, int) { gate.visit_state(visitor); });
  UpdateGate restored(options);
  SavedState saved(checkpoint, 0, 1);
  restored.visit_state(saved);
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(restored.loss_scale(), gate.loss_scale()) << step;
    EXPECT_EQ(gate.loss_scale(), step < 2 ? 32.0f : 64.0f) << step;
    EXPECT_FALSE(gate.record(false));
    EXPECT_FALSE(restored.record(false));
  }
}

}  // namespace
}  // namespace kolo::trainer
