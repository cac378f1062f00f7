// Tests the state of sparse gradient sets, kept between steps, saved and restored.

#include <cmath>
#include <span>
#include <stdexcept>

#include <gmock/gmock.h>

#include "runtime/gradients/compression_state.h"
#include "tests/runtime/gradients/compressed_member.h"

namespace kolo::test {
namespace {

/// Returns the residuals of a saved state, without its step number.
FeedbackState residuals(const GradientSet& set) {
  return compression_state_from(set.save_compression()).feedback;
}

// An infinity in any tensor, sparse or dense, on any rank changes no bit of any rank's residuals.
// All ranks detect that the results are not finite, and the next step works.
TEST(CompressedState, AStepThatIsNotFiniteLeavesNoTrace) {
  for (const std::size_t tensor : std::initializer_list<std::size_t>{0, 1, 2}) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      run({.compression = "second=int8,*=topk(0.05)"}, [&](Member& member) {
        member.reduce(std::size_t{0});
        const auto before = residuals(member.set());
        Tensors gradients = gradients_of(member.runtime().rank(), 1);
        if (member.runtime().rank() == 1) gradients[tensor][17] = bad;
        const Tensors result = member.reduce(gradients);
        bool finite = true;
        for (const auto& values : result) {
          for (const float value : values) finite &= std::isfinite(value);
        }
        require(!finite, "the result looks finite");
        require(residuals(member.set()) == before, "a residual has changed");
        const auto stats = member.set().compression_stats();
        require(stats[0].skipped_steps == 1 && stats[0].steps == 2, "the step was not skipped");
        member.reduce(std::size_t{2});
        require(residuals(member.set()) != before, "the next step did nothing");
      });
    }
  }
}

// Values beyond float16's range show whether exponents are part of the saved state.
TEST(CompressedState, ASavedStateGoesOnBitForBit) {
  constexpr float kSmall = 0x1p-60f;
  for (const char* spec : {"topk(0.05)", "topk(0.05,dgc,warmup=1)", "first=topk(0.05),*=fp16",
                           "fp16", "first=2bit(1e-17),*=int8(warmup=1)"}) {
    SCOPED_TRACE(spec);
    const Setting setting{.compression = spec};
    std::vector<Tensors> whole;
    std::vector<std::vector<std::byte>> states(static_cast<std::size_t>(setting.ranks));
    run(setting, [&](Member& member) {
      const int rank = member.runtime().rank();
      for (std::size_t step = 0; step < 7; ++step) {
        if (step == 4) states[static_cast<std::size_t>(rank)] = member.set().save_compression();
        Tensors result = member.reduce(gradients_of(rank, step, kSmall));
        if (rank == 0) whole.push_back(std::move(result));
      }
    });
    EXPECT_GT(nonzeros(whole[4][2]), 0u);
    run(setting, [&](Member& member) {
      const int rank = member.runtime().rank();
      member.set().load_compression(states[static_cast<std::size_t>(rank)]);
      for (std::size_t step = 4; step < 7; ++step) {
        require(member.reduce(gradients_of(rank, step, kSmall)) == whole[step],
                "step " + std::to_string(step) + " differs");
      }
    });
  }
}

// Residuals of four ranks keep their weight on one, two or eight ranks: after a flush, sums are
// unchanged (and averages, except for the number of ranks).
TEST(CompressedState, AStateGoesOnAmongOtherRanks) {
  for (const auto& [compression, op] : std::initializer_list<std::pair<const char*, ReduceOp>>{
           {"second=topk(0.05),first=topk(0.02,dgc=0.5),*=fp16", ReduceOp::kSum},
           {"second=topk(0.05),first=topk(0.02,dgc=0.5),*=fp16", ReduceOp::kAverage},
           {"second=int8,*=2bit(0.25)", ReduceOp::kAverage}}) {
    SCOPED_TRACE(compression);
    Setting setting{.compression = compression, .ranks = 4, .op = op};
    std::vector<std::vector<std::byte>> states(4);
    Tensors flushed;
    const auto nothing = [] {
      Tensors zeros;
      for (const GradientSpec& spec : model()) zeros.emplace_back(spec.count());
      return zeros;
    };
    run(setting, [&](Member& member) {
      const int rank = member.runtime().rank();
      for (std::size_t step = 0; step < 3; ++step) member.reduce(step);
      states[static_cast<std::size_t>(rank)] = member.set().save_compression();
      member.set().flush_residuals();
      Tensors result = member.reduce(nothing());
      if (rank == 0) flushed = std::move(result);
    });
    ASSERT_GT(nonzeros(flushed[0]), 0u);
    ASSERT_GT(nonzeros(flushed[2]), 0u);
    for (const int ranks : {1, 2, 8}) {
      setting.ranks = ranks;
      run(setting, [&](Member& member) {
        member.set().remap_compression(states);
        member.set().flush_residuals();
        require(member.reduce(nothing()) == flushed, std::to_string(ranks) + " ranks");
      });
    }
  }
}

// Residuals that no bucket of the new set takes would be lost: rules name other tensors now, or
// "auto" chooses dense. Tensors without a residual may be sent in any way.
TEST(CompressedState, AmongOtherRanksNoResidualIsLostInSilence) {
  const auto remapped = [](const Setting& setting, const auto& states) {
    std::string error;
    run(setting, [&](Member& member) {
      try {
        member.set().remap_compression(states);
      } catch (const KoloError& e) {
        require(e.error().code == ErrorCode::kData, "code");
        error = e.what();
      }
      const double first = member.set().residual_norm("first").value_or(0);
      require(error.empty() || first == 0, "an error has changed a residual");
    });
    return error;
  };
  Setting setting{.compression = "topk(0.05)", .ranks = 2};
  std::vector<std::vector<std::byte>> states(2), dropped(2);
  run(setting, [&](Member& member) {
    const auto rank = static_cast<std::size_t>(member.runtime().rank());
    member.reduce(std::size_t{0});
    states[rank] = member.set().save_compression();
    member.set().drop_residuals();
    dropped[rank] = member.set().save_compression();
  });
  setting.ranks = 1;
  EXPECT_EQ(remapped(setting, states), "");
  for (const std::string missing : {"first", "second"}) {
    setting.compression = missing + "=none,*=topk(0.05)";
    EXPECT_THAT(remapped(setting, states), testing::HasSubstr(" of '" + missing + "'"));
  }
  setting.compression = "auto";
  EXPECT_THAT(remapped(setting, states), testing::HasSubstr("a residual or a velocity of '"));
  for (const char* compression : {"none", "second=none,*=topk(0.05)", "auto"}) {
    setting.compression = compression;
    EXPECT_EQ(remapped(setting, dropped), "") << compression;
  }
}

TEST(CompressedState, AmongOtherRanksNoVelocityIsLostInSilence) {
  run({.compression = "topk(0.05,dgc)", .ranks = 1}, [](Member& member) {
    member.reduce(std::size_t{0});
    member.set().drop_residuals();
    const std::vector<std::vector<std::byte>> states{member.set().save_compression()};
    GradientSet dense = member.runtime().register_gradients("dense", model(), {});
    try {
      dense.remap_compression(states);
      require(false, "the velocity is lost");
    } catch (const KoloError& e) {
      require(e.error().code == ErrorCode::kData, "code");
      require(std::string(e.what()).find("a velocity of '") != std::string::npos, e.what());
    }
  });
}

TEST(CompressedState, AStateOfAnotherSetIsRefused) {
  run({.ranks = 1}, [](Member& member) {
    const auto refused = [&](std::span<const std::byte> state) {
      try {
        member.set().load_compression(state);
        return false;
      } catch (const KoloError& e) {
        return e.error().code == ErrorCode::kData;
      }
    };
    std::vector<std::byte> state = member.set().save_compression();
    require(refused(std::span(state).first(3)), "three bytes");
    require(refused(std::span(state).first(state.size() - 1)), "truncated");
    require(!refused(state), "its own");
    const GradientSet other = member.runtime().register_gradients(
        "other", {{.name = "first", .shape = {64, 64}}}, {.compression = "topk(0.1)"});
    require(refused(other.save_compression()), "of another set");
  });
}

// A set in device memory, or with another wire, has no exponents; so a job may resume on another
// device.
TEST(CompressedState, WireExponentsAreOnlyForSetsThatHaveThem) {
  run({}, [](Member& member) {
    const auto registered = [&](const char* name, const char* gradient, std::optional<DType> wire) {
      return member.runtime().register_gradients(name, {{.name = gradient, .shape = {64, 64}}},
                                                 {.wire_dtype = wire});
    };
    GradientSet cast = registered("cast", "x", DType::kFloat16);
    GradientSet plain = registered("plain", "x", std::nullopt);
    GradientSet other = registered("other", "y", DType::kFloat16);
    const std::vector<std::byte> exponents = cast.save_compression();
    require(compression_state_from(exponents).wires.size() == 1, "saved exponents");
    plain.load_compression(exponents);
    cast.load_compression(plain.save_compression());
    cast.load_compression(exponents);
    try {
      other.load_compression(exponents);
      require(false, "exponents of another gradient were loaded");
    } catch (const KoloError& e) {
      require(e.error().code == ErrorCode::kData, "code");
    }
  });
}

TEST(CompressedState, WhatIsDroppedIsGone) {
  run({}, [](Member& member) {
    member.reduce(std::size_t{0});
    require(member.set().residual_norm("first").value() > 0, "nothing was left");
    member.set().drop_residuals();
    require(member.set().residual_norm("first") == 0.0, "something is left");
  });
}

TEST(CompressedState, WithoutFeedbackTheRestIsForgotten) {
  run({.compression = "topk(0.05,nofeedback)"}, [](Member& member) {
    member.reduce(std::size_t{0});
    require(member.set().residual_norm("first") == 0.0, "something is left");
  });
}

TEST(CompressedState, CallsBelongBetweenIterations) {
  run({.ranks = 1}, [](Member& member) {
    member.set().ready(0);
    try {
      member.set().save_compression();
      throw std::runtime_error("no error");
    } catch (const UsageError&) {
    }
    member.set().ready(1);
    member.set().ready(2);
    member.set().wait();
  });
}

}  // namespace
}  // namespace kolo::test
