// Update kernels equal their references bit for bit.

#include <limits>

#include "tests/trainer/cuda/cuda_test.h"
#include "tests/trainer/cuda/references.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/cuda/kernels/update.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer::cuda {
namespace {

constexpr DType kGradientTypes[] = {DType::kFloat32, DType::kBFloat16};

/// Two parameters on host and device. Their sizes are not multiples of a pack.
class UpdateTest : public CudaTest {
 protected:
  static constexpr std::size_t kFirst = kUpdateChunk + 3;
  static constexpr std::size_t kSecondOffset = 2 * kUpdateChunk;
  static constexpr std::size_t kSecond = 130;
  static constexpr std::size_t kCount = kSecondOffset + 256;
  static constexpr std::size_t kFirstState = 256;  ///< Moments have another order than values.

  std::vector<UpdateChunk> chunks(const std::byte* gradient) const {
    const std::size_t size = size_of(gradient_dtype_);
    return {{.gradient = gradient,
             .offset = 0,
             .state = kFirstState,
             .count = kUpdateChunk,
             .decays = 1},
            {.gradient = gradient + kUpdateChunk * size,
             .offset = kUpdateChunk,
             .state = kFirstState + kUpdateChunk,
             .count = kFirst - kUpdateChunk,
             .decays = 1,
             .follows = 1},
            {.gradient = gradient + kSecondOffset * size,
             .offset = kSecondOffset,
             .state = 0,
             .count = kSecond,
             .decays = 0}};
  }

  void make(DType copy_dtype, const std::vector<float>& gradient_values,
            DType gradient_dtype = DType::kFloat32) {
    copy_dtype_ = copy_dtype;
    gradient_dtype_ = gradient_dtype;
    gradient_ = encode(gradient_dtype, gradient_values);
    copy_.assign(kCount * size_of(copy_dtype), std::byte{});
    host_chunks_ = chunks(gradient_.data());
    device_gradient_ = upload(gradient_);
    device_values_ = upload(values_);
    device_first_ = upload(first_);
    device_second_ = upload(second_);
    device_copy_ = upload(copy_);
    device_chunks_ = upload(chunks(device_gradient_.data()));
    device_decision_ = upload(std::vector<UpdateDecision>(1));
    partials_ = room(host_chunks_.size() * sizeof(double));
  }

  template <typename T>
  static T* pointer(const DeviceMemory& memory) {
    return reinterpret_cast<T*>(memory.data());
  }

  UpdateArrays host() {
    return {.chunks = host_chunks_.data(),
            .chunk_count = host_chunks_.size(),
            .values = values_.data(),
            .first = first_.data(),
            .second = second_.data(),
            .copy_dtype = copy_dtype_,
            .copy = copy_.data(),
            .gradient_dtype = gradient_dtype_};
  }
  UpdateArrays device() {
    return {.chunks = pointer<UpdateChunk>(device_chunks_),
            .chunk_count = host_chunks_.size(),
            .values = pointer<float>(device_values_),
            .first = pointer<float>(device_first_),
            .second = pointer<float>(device_second_),
            .copy_dtype = copy_dtype_,
            .copy = device_copy_.data(),
            .gradient_dtype = gradient_dtype_};
  }
  void decide(const DecisionRule& rule) {
    auto* const sums = pointer<double>(partials_);
    sum_squares(native(), device(), sums);
    decide_update(native(), sums, host_chunks_.size(), rule, device_decision());
  }
  UpdateDecision* device_decision() { return pointer<UpdateDecision>(device_decision_); }
  UpdateDecision decided() { return download<UpdateDecision>(device_decision_.data(), 1).front(); }

  void expect_equal_bits() {
    EXPECT_EQ(download<float>(device_values_.data(), kCount), values_);
    EXPECT_EQ(download<float>(device_first_.data(), kCount), first_);
    EXPECT_EQ(download<float>(device_second_.data(), kCount), second_);
    EXPECT_EQ(download<std::byte>(device_copy_.data(), copy_.size()), copy_);
  }

  DType copy_dtype_ = DType::kFloat32, gradient_dtype_ = DType::kFloat32;
  std::vector<std::byte> gradient_;
  std::vector<float> values_ = random_values(kCount, 2);
  std::vector<float> first_ = std::vector<float>(kCount), second_ = std::vector<float>(kCount);
  std::vector<std::byte> copy_;
  std::vector<UpdateChunk> host_chunks_;
  DeviceMemory device_gradient_, device_values_, device_first_, device_second_, device_copy_,
      device_chunks_, device_decision_, partials_;
};

TEST_F(UpdateTest, AdamWGivesTheBitsOfTheReference) {
  const auto expect_steps = [this](DType dtype, DType gradients) {
    make(dtype, random_values(kCount, 1), gradients);
    const DecisionRule rule{
        .gradient_scale = 0.5f, .clip_norm = 1.0, .beta1 = 0.9f, .beta2 = 0.99f};
    const AdamWRates rates{
        .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f, .weight_decay = 0.1f};
    UpdateDecision expected;
    for (int step = 0; step < 3; ++step) {
      reference::decide_update(host(), rule, &expected);
      decide(rule);
      update_adamw(native(), device(), rates, device_decision());
      const UpdateDecision actual = decided();
      // Squares are summed in float32 within 32 elements.
      EXPECT_NEAR(actual.gradient_norm, expected.gradient_norm, 1e-5 * expected.gradient_norm);
      EXPECT_EQ(actual.steps, expected.steps);
      // From here on the decision is the same, so elements must agree in every bit.
      reference::update_adamw(host(), rates, &actual);
      expect_equal_bits();
    }
  };
  for (const DType dtype : kActivationTypes) expect_steps(dtype, DType::kFloat32);
  expect_steps(DType::kBFloat16, DType::kBFloat16);
}

TEST_F(UpdateTest, SgdGivesTheBitsOfTheReference) {
  const DecisionRule rule{.gradient_scale = 1.0f, .clip_norm = 0.0, .beta1 = 0, .beta2 = 0};
  const SgdRates rates{.lr = 0.01f, .momentum = 0.9f, .weight_decay = 0.1f};
  for (const DType gradients : kGradientTypes) {
    make(DType::kBFloat16, random_values(kCount, 1), gradients);
    for (int step = 0; step < 2; ++step) {
      decide(rule);
      update_sgd(native(), device(), rates, device_decision());
      const UpdateDecision actual = decided();
      reference::update_sgd(host(), rates, &actual);
      expect_equal_bits();
    }
  }
}

TEST_F(UpdateTest, InfiniteGradientsSkip) {
  std::vector<float> gradient = random_values(kCount, 1);
  gradient[kSecondOffset + kSecond - 1] = std::numeric_limits<float>::infinity();
  const DecisionRule rule{.gradient_scale = 1.0f, .clip_norm = 0.0, .beta1 = 0, .beta2 = 0};
  const SgdRates rates{.lr = 0.01f, .momentum = 0.9f, .weight_decay = 0.1f};
  for (const DType dtype : kGradientTypes) {
    make(DType::kFloat16, gradient, dtype);
    decide(rule);
    update_sgd(native(), device(), rates, device_decision());
    EXPECT_EQ(decided().is_skipped, 1u);
    EXPECT_EQ(decided().steps, 0u);
    expect_equal_bits();
  }
}

// After three steps of one parameter, references and host trainer differ only by rounding errors.
TEST(References, UpdatesFollowTheHostTrainer) {
  const std::vector<float> gradient = random_values(33, 1);
  std::vector<float> value = random_values(33, 2), first(33), second(33);
  std::vector<float> host_value = value, host_first = first, host_second = second;
  const std::vector<UpdateChunk> chunks = {
      {.gradient = gradient.data(), .offset = 0, .count = 33, .decays = 1}};
  const UpdateArrays arrays{.chunks = chunks.data(),
                            .chunk_count = 1,
                            .values = value.data(),
                            .first = first.data(),
                            .second = second.data(),
                            .copy_dtype = DType::kFloat32,
                            .copy = nullptr};
  const DecisionRule rule{.gradient_scale = 0.5f, .clip_norm = 0.0, .beta1 = 0.9f, .beta2 = 0.99f};
  UpdateDecision decision;
  for (int step = 1; step <= 3; ++step) {
    reference::decide_update(arrays, rule, &decision);
    reference::update_adamw(
        arrays, {.lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f, .weight_decay = 0.1f},
        &decision);
    adamw_update(
        {.lr = 0.1f,
         .beta1 = 0.9f,
         .beta2 = 0.99f,
         .epsilon = 1e-8f,
         .weight_decay = 0.1f,
         .bias_correction1 = static_cast<float>(1.0 / (1.0 - std::pow(double{0.9f}, step))),
         .bias_correction2 = static_cast<float>(1.0 / (1.0 - std::pow(double{0.99f}, step))),
         .gradient_scale = 0.5f},
        gradient, host_first, host_second, host_value);
  }
  EXPECT_EQ(decision.steps, 3u);
  expect_close(value, host_value, 0x1.0p-20f, "value by AdamW");
  expect_close(second, host_second, 0x1.0p-20f, "second moment");
  for (int step = 0; step < 3; ++step) {
    reference::update_sgd(arrays, {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f}, &decision);
    sgd_update({.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f, .gradient_scale = 0.5f},
               gradient, host_first, host_value);
  }
  expect_close(value, host_value, 0x1.0p-20f, "value by SGD");
}

TEST(Decision, ClipsAfterTheScaleAndDoesNotCountWhatItSkips) {
  UpdateDecision last;
  last.steps = 4;
  const DecisionRule rule{.gradient_scale = 0.5f, .clip_norm = 2.0, .beta1 = 0.9f, .beta2 = 0.99f};
  const UpdateDecision clipped = decide(last, rule, 64.0);
  EXPECT_DOUBLE_EQ(clipped.gradient_norm, 4.0);
  EXPECT_FLOAT_EQ(clipped.gradient_factor, 0.25f);
  EXPECT_EQ(clipped.is_skipped, 0u);
  EXPECT_EQ(clipped.steps, 5u);
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(decide(last, rule, bad).is_skipped, 1u);
    EXPECT_EQ(decide(last, rule, bad).steps, 4u);
  }
}

}  // namespace
}  // namespace kolo::trainer::cuda
