#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "comm/kernels/reduce_kernels.h"
#include "compression/kernels/low_rank.h"
#include "compression/quantised_codec.h"

namespace kolo {
namespace {

/// Returns the plan by which owners sum the numbers of all left (0) or right (1) factors.
SparsePlan plan_of(const SparsePlan& plan, std::size_t factor) {
  return {.tensor_counts = {plan.factors[factor]}, .ranks = plan.ranks};
}

/// Sends each tensor as two factors of a few columns, by one step of a power iteration that goes on
/// in the next step. Source: Vogels, Karimireddy and Jaggi, NeurIPS 2019.
///
///     encode    left  = sum · rightᵀ            -> the sum of all ranks' left factors
///     refine    orthonormalise that sum
///               right = leftᵀ · sum             -> the sum of all ranks' right factors
///     decode    result = left · right
///
/// Here the sum is this rank's residual + gradient, and `right` begins as the former step's.
///
/// All ranks have the same left factor, so what a rank sends is left · (its own right factor), and
/// its residual is the rest. The paper subtracts the average of all ranks instead. Both give the
/// same results, because these depend on the sum of all residuals only, but those residuals would
/// also collect the differences between ranks, without bound.
class PowerSgdCodec final : public GradientCodec {
 public:
  PowerSgdCodec(int rank, const ProcessGrid& grid, const SparseOptions& options)
      : GradientCodec(rank, grid, options),
        plans_{plan_of(layout_.plan, 0), plan_of(layout_.plan, 1)},
        kept_(layout_.parts.size()),
        left_(plans_[0].count()),
        right_(plans_[1].count()) {}

  void encode(const CodecElements& contribution, Payloads shares) override {
    begin_sparse(contribution);
    refines_ = false;
    bool finite = true;
    for_parts([&](std::size_t i, const MatrixPart& part, float* left, float* right) {
      const ErrorFeedback::Sums sums = feedback_.fold_in_place(i, part_at(i), 1.0f);
      kept_[i] = sums.values;
      finite &= sums.finite;
      begin_iteration(i, part, right);
      multiply(part, kept_[i].data(), right, left);
    });
    stats_.k = stats_.sent_pairs = left_.size() + right_.size();
    send(finite, shares);
  }

  void merge(Payloads shares, Payloads result) override {
    const std::size_t bytes = payload_bytes(layout_.position);
    const std::size_t count = plan().ownership().local_count(layout_.position);
    bool finite = true;
    for (const auto share : shares) finite &= read_header(bytes, share);
    float* const sums = numbers(result.front());
    for (std::size_t i = 0; finite && i < shares.size(); ++i) {
      const float* const values = numbers(shares[i]);
      for (std::size_t j = 0; j < count; ++j) sums[j] = i == 0 ? values[j] : sums[j] + values[j];
    }
    finite = finite && are_finite({sums, count});
    stats_.payload_bytes += write_header(bytes, finite, result.front());
  }

  void refine(Payloads sums, const CodecElements&, Payloads shares) override {
    const bool finite = receive(sums);
    for_parts([&](std::size_t i, const MatrixPart& part, float* left, float* right) {
      if (!finite) return;
      orthonormalise(part, {left, part.left_count()});
      multiply_transposed(part, kept_[i].data(), left, right);
      add_product(part, -1.0f, left, right, kept_[i].data());
    });
    refines_ = true;
    send(finite, shares);
  }

  void decode(Payloads results, const CodecElements& elements, double scale) override {
    locate(elements);
    bool finite = receive(results);
    for_parts([&](std::size_t i, const MatrixPart& part, const float* left, const float* right) {
      if (!finite) return;
      const std::span<float> result = part_at(i);
      std::ranges::fill(result, 0.0f);
      add_product(part, 1.0f, left, right, result.data());
      rescale(DType::kFloat32, result.data(), result.size(), scale);
      finite = are_finite(result);
      std::copy_n(right, part.right_count(), factors_.pending(i).data());
    });
    if (finite) {
      stats_.kept_pairs = stats_.sent_pairs;
    } else {
      spoil();
    }
  }

 private:
  void find_sent() override {  // `refine` already subtracts the sent values
    for (std::size_t i = 0; i < layout_.parts.size(); ++i) factors_.accept(i);
  }

  template <typename Visit>
  void for_parts(const Visit& visit) {
    float* left = left_.data();
    float* right = right_.data();
    for (std::size_t i = 0; i < layout_.matrices.size(); ++i) {
      const MatrixPart& part = layout_.matrices[i];
      visit(i, part, left, right);
      left += part.left_count();
      right += part.right_count();
    }
  }

  /// Writes the former step's right factor, with rows of norm one. A row of zeros, as in the first
  /// step, becomes pseudo-random numbers that are equal on all ranks.
  void begin_iteration(std::size_t i, const MatrixPart& part, float* right) {
    std::ranges::copy(factors_.current(i), right);
    for (std::size_t k = 0; k < part.rank; ++k) {
      const std::span<float> row(right + k * part.columns, part.columns);
      if (std::ranges::count(row, 0.0f) == std::ssize(row)) {
        const Dither random =
            Dither::of(stats_.steps, static_cast<int>(k), false, layout_.parts[i].offset);
        for (std::size_t j = 0; j < row.size(); ++j) row[j] = random(j) - 0.5f;
      }
      double squares = 0;
      for (const float value : row) squares += double{value} * double{value};
      const double scale = 1 / std::sqrt(squares);
      for (float& value : row) value = static_cast<float>(value * scale);
    }
  }

  // --- Payloads: a header and an owner's numbers of a factor ------------------------------------

  std::size_t payload_bytes(int owner) const {
    return sizeof(CodesHeader) + plan().ownership().local_count(owner) * sizeof(float);
  }
  static float* numbers(std::span<std::byte> payload) {
    return reinterpret_cast<float*>(payload.data() + sizeof(CodesHeader));
  }
  const SparsePlan& plan() const { return plans_[refines_ ? 1 : 0]; }
  std::vector<float>& factor() { return refines_ ? right_ : left_; }

  void send(bool finite, Payloads shares) {
    finite = finite && are_finite(factor());
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const int owner = static_cast<int>(i);
      stats_.payload_bytes += write_header(payload_bytes(owner), finite, shares[i]);
      plan().for_runs(owner, [&](const OwnedRun& run) {
        if (finite) std::copy_n(&factor()[run.first], run.count, numbers(shares[i]) + run.local);
      });
    }
  }

  /// Reads the sums of all owners. Returns whether the numbers of all ranks were finite.
  bool receive(Payloads sums) {
    bool finite = true;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const int owner = static_cast<int>(i);
      finite &= read_header(payload_bytes(owner), sums[i]);
      plan().for_runs(owner, [&](const OwnedRun& run) {
        if (finite) std::copy_n(numbers(sums[i]) + run.local, run.count, &factor()[run.first]);
      });
    }
    return finite;
  }

  const SparsePlan plans_[2];           // the exchanges of the left and of the right factors
  std::vector<std::span<float>> kept_;  // pending residuals by part, within a step
  std::vector<float> left_, right_;     // factors of all parts, within a step
  bool refines_ = false;                // whether the right factors are in exchange
};

PayloadForms forms_of(const SparsePlan& plan) {
  const std::size_t count = plan.ownership().most_local();
  PayloadForm form{.capacity = sizeof(CodesHeader) + count * sizeof(float)};
  form.usual = {.bytes = form.capacity};
  return {.share = form, .result = form, .contribution = {}};
}

}  // namespace

constinit const CompressionMethod methods::power_sgd{
    .name = "powersgd",
    .title = "PowerSGD",
    .takes_rank = true,
    .needs_owners = true,
    // Folding reads two arrays and writes one. The four products, which compute on data in the
    // cache, take per column of the factors as long as 5 bytes.
    .needs =
        [](const CompressedBucketShape& bucket, const CompressionCosts& costs) {
          const double bytes = 4 * static_cast<double>(bucket.factors);
          const double passes = 12 + 5 * static_cast<double>(bucket.matrix_rank);
          return ExchangeNeeds{
              .contribution_bytes = bytes,
              .result_bytes = bytes,
              .pass_us = passes * static_cast<double>(bucket.count) / costs.selector_bytes_per_us,
              .exchanges = 2};
        },
    .make_codec = make_codec<PowerSgdCodec>,
    .forms = [](const SparsePlan& plan) { return forms_of(plan_of(plan, 0)); },
    .refined_forms = [](const SparsePlan& plan) { return forms_of(plan_of(plan, 1)); }};

}  // namespace kolo
