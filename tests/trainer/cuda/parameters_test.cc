// Tests parameters on a device, their gradients, and the state of their optimizers, against the
// processor.

#include <array>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "tests/trainer/cuda/cuda_test.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/cuda/cuda_optimizer.h"
#include "trainer/cuda/parameters.h"
#include "trainer/kernels/kernels.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/update_gate.h"

namespace kolo::trainer::cuda {
namespace {

/// Saves pieces by name, and restores them.
class NamedState final : public StateVisitor {
 public:
  std::map<std::string, std::pair<Shape, std::vector<std::byte>>, std::less<>> pieces;
  bool restores = false;

  bool is_restoring() const override { return restores; }
  bool has_other_ranks() const override { return false; }
  using StateVisitor::shared;
  void shared(std::string_view, std::vector<double>&) override { FAIL(); }
  void part_of_sum(std::string_view, double&) override { FAIL(); }
  void bytes_of_ranks(std::string_view, std::vector<std::vector<std::byte>>&) override { FAIL(); }

 protected:
  void visit(Reach reach, std::string_view name, const Piece& piece) override {
    EXPECT_EQ(reach, Reach::kShared);
    if (!restores) {
      pieces[std::string(name)] = {piece.shape, {piece.bytes.begin(), piece.bytes.end()}};
      return;
    }
    const auto found = pieces.find(name);
    ASSERT_NE(found, pieces.end()) << name;
    EXPECT_EQ(found->second.first, piece.shape) << name;
    ASSERT_EQ(found->second.second.size(), piece.bytes.size()) << name;
    std::ranges::copy(found->second.second, piece.bytes.begin());
  }
  void visit_shard(std::string_view, const Piece&, std::size_t) override { FAIL(); }
};

std::vector<BFloat16> rounded(const std::vector<float>& values) {
  std::vector<BFloat16> result(values.size());
  round_to_bfloat16(values, result);
  return result;
}

/// A matrix and a vector on the processor and on a device.
class DeviceParametersTest : public CudaTest {
 protected:
  static constexpr std::array<std::size_t, 2> kSizes = {3 * 150, 7};

  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    host_.add("matrix", {3, 150}, {.deviation = 1.0f});
    host_.add("vector", {7}, {.deviation = 1.0f});
    parameters_ = std::make_unique<DeviceParameters>(host_, *device_, *stream_, DType::kFloat32);
    parameters_->upload();
  }

  void bind(DType dtype) {
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      gradients_[i] = room(kSizes[i] * size_of(dtype));
      parameters_->bind_gradient(i, gradients_[i].data(), dtype);
    }
  }

  /// Copies `values` to the device.
  template <typename T>
  void put(const std::vector<T>& values, void* into) {
    const DeviceMemory from = upload(values);
    const std::size_t bytes = values.size() * sizeof(T);
    stream_->copy({into, bytes, DType::kUInt8, MemoryKind::kDevice},
                  {from.data(), bytes, DType::kUInt8, MemoryKind::kDevice});
    finish();
  }

  std::vector<std::uint16_t> bits(std::size_t index) {
    return download<std::uint16_t>(gradients_[index].data(), kSizes[index]);
  }
  static std::vector<std::uint16_t> bits(const std::vector<float>& values) {
    std::vector<std::uint16_t> result;
    for (const BFloat16 value : rounded(values)) result.push_back(value.bits);
    return result;
  }

  /// Copies the values of the device to those on the processor, which it returns.
  std::vector<float> values_of(std::size_t index) {
    parameters_->download();
    const std::span<const float> values = std::as_const(host_)[index].value();
    return {values.begin(), values.end()};
  }

  ParameterSet host_{1};
  std::unique_ptr<DeviceParameters> parameters_;
  std::array<DeviceMemory, 2> gradients_;
};

TEST_F(DeviceParametersTest, BFloat16GradientsAreRoundedOnceByTheLastPass) {
  bind(DType::kBFloat16);
  std::vector<std::size_t> ready;
  parameters_->on_ready([&](std::size_t index) { ready.push_back(index); });
  const std::vector<GradientPass> passes = {{.is_first = true, .is_last = false},
                                            {.is_first = false, .is_last = true}};
  for (const GradientPass pass : passes) {
    parameters_->begin(pass);
    EXPECT_EQ(ready, std::vector<std::size_t>());
    for (const std::size_t i : {1u, 0u}) {
      const DeviceParameter& parameter = (*parameters_)[i];
      ASSERT_NE(parameter.gradient, nullptr);
      // The sum that a layer has written so far; 1.01 and 2.02 have more than eight bits.
      put(std::vector<float>(kSizes[i], pass.is_first ? 1.01f : 2.02f), parameter.gradient);
      parameters_->ready(parameter);
    }
  }
  EXPECT_EQ(ready, (std::vector<std::size_t>{1, 0}));
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    EXPECT_EQ(bits(i), bits(std::vector<float>(kSizes[i], 2.02f)));
  }
}

TEST_F(DeviceParametersTest, AProductWritesItsBFloat16GradientItself) {
  bind(DType::kBFloat16);
  (*parameters_)[0].is_one_product = true;
  parameters_->begin({});
  EXPECT_TRUE(parameters_->is_rounded_by_product((*parameters_)[0]));
  EXPECT_EQ((*parameters_)[0].gradient, nullptr) << "it needs no float32 memory";
  EXPECT_FALSE(parameters_->is_rounded_by_product((*parameters_)[1]));
  EXPECT_NE((*parameters_)[1].gradient, nullptr);
  put(rounded(std::vector<float>(kSizes[0], 3.03f)), (*parameters_)[0].rounded);
  parameters_->ready((*parameters_)[0]);
  EXPECT_EQ(bits(0), bits(std::vector<float>(kSizes[0], 3.03f)));

  parameters_->begin({.is_first = true, .is_last = false});
  EXPECT_FALSE(parameters_->is_rounded_by_product((*parameters_)[0])) << "passes add up";
  EXPECT_NE((*parameters_)[0].gradient, nullptr);
  const AllocationCounts before = device_->allocation_counts();
  parameters_->begin({.is_first = false, .is_last = true});
  EXPECT_EQ(device_->allocation_counts().allocations, before.allocations);

  bind(DType::kFloat32);
  EXPECT_EQ((*parameters_)[0].rounded, nullptr);
  EXPECT_EQ((*parameters_)[0].gradient, reinterpret_cast<float*>(gradients_[0].data()));
}

// From equal bfloat16 gradients, updates follow the processor's up to its rounding errors.
TEST_F(DeviceParametersTest, UpdatesFromBFloat16GradientsFollowTheProcessor) {
  for (const OptimizerEntry& entry : {sgd_entry(), adamw_entry()}) {
    SCOPED_TRACE(entry.name);
    ParameterSet on_processor(1);
    std::array<std::vector<BFloat16>, 2> gradients;
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      Parameter& parameter = on_processor.add(host_[i].name(), host_[i].shape(), {});
      std::ranges::copy(std::as_const(host_)[i].value(), parameter.value().begin());
      gradients[i].resize(kSizes[i]);
      parameter.bind_gradient(std::span(gradients[i]));
    }
    parameters_->upload();
    bind(DType::kBFloat16);
    const OptimizerOptions options{.weight_decay = 0.1f};
    const std::unique_ptr<Optimizer> optimizer = entry.make(on_processor, options);
    CudaOptimizer on_device(*parameters_, entry.name, options);
    for (std::uint64_t step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < kSizes.size(); ++i) {
        round_to_bfloat16(random_values(kSizes[i], 10 * step + i), gradients[i]);
        put(gradients[i], gradients_[i].data());
      }
      const double norm = gradient_norm(on_processor);
      optimizer->step(0.1f, clip_factor(norm, 1.0));
      on_device.step({.lr = 0.1f, .clip_norm = 1.0});
      EXPECT_NEAR(on_device.report().gradient_norm, norm, 1e-6 * norm);
    }
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      expect_close(values_of(i), std::as_const(on_processor)[i].value(), 0x1.0p-18f,
                   host_[i].name());
    }
  }
}

// An optimizer on the processor takes three steps, its state travels through one on the device, and
// a new optimizer on the processor restores it from there.
TEST_F(DeviceParametersTest, StateOfAnOptimizerIsThatOfTheProcessor) {
  bind(DType::kFloat32);
  host_.own_gradients();
  for (const OptimizerEntry& entry : {sgd_entry(), adamw_entry()}) {
    SCOPED_TRACE(entry.name);
    const std::unique_ptr<Optimizer> optimizer = entry.make(host_, {});
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < kSizes.size(); ++i) {
        const std::span<float> gradient = host_[i].gradient();
        for (std::size_t j = 0; j < gradient.size(); ++j) {
          gradient[j] =
              static_cast<float>(1000 * step + 500 * static_cast<int>(i)) + static_cast<float>(j);
        }
      }
      optimizer->step(0.1f, 1.0f);
    }
    NamedState host;
    optimizer->visit_state(host);
    host.restores = true;
    CudaOptimizer on_device(*parameters_, entry.name, {});
    on_device.visit_state(host);
    NamedState device;
    on_device.visit_state(device);
    EXPECT_EQ(device.pieces, host.pieces);

    device.restores = true;
    const std::unique_ptr<Optimizer> resumed = entry.make(host_, {});
    resumed->visit_state(device);
    NamedState again;
    resumed->visit_state(again);
    EXPECT_EQ(again.pieces, host.pieces);
  }
}

}  // namespace
}  // namespace kolo::trainer::cuda
