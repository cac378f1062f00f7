#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "compression/compression_method.h"
#include "compression/gradient_codec.h"

namespace kolo {

/// The header of every payload of codes or factors, which follow if all numbers are finite.
struct CodesHeader {
  std::uint64_t used_bytes;
  std::uint64_t not_finite;
};
/// Returns the used bytes: all, or only the header if some number of the sender is not finite.
std::size_t write_header(std::size_t used_bytes, bool finite, std::span<std::byte> payload);
/// Returns whether the sender's numbers were all finite. Errors: KoloError(kInternal) unless the
/// payload has `used_bytes` bytes, or only a header if a number was not finite.
bool read_header(std::size_t used_bytes, std::span<const std::byte> payload);

/// Largest number of values in a block. The values of a block belong to one tensor and have one
/// scale.
inline constexpr std::size_t kQuantisedBlock = 256;

/// Pseudo-random numbers in (0, 1) for stochastic rounding. They depend only on the step, the rank
/// and the element, so a run repeats itself bit for bit, also after a checkpoint.
class Dither {
 public:
  explicit Dither(std::uint64_t key) : key_(static_cast<std::uint32_t>(key >> 32)) {}
  /// Returns the numbers for the block that begins with `element` of the plan, in one step on one
  /// rank. Values and sums have different numbers.
  static Dither of(std::size_t step, int rank, bool of_sums, std::size_t element);

  /// Returns number `i`, an odd multiple of 2^-17. All such numbers are equally likely.
  float operator()(std::size_t i) const {
    std::uint32_t x = key_ + static_cast<std::uint32_t>(i) * 0x9e3779b9U;  // last step of murmur3
    x = (x ^ x >> 16) * 0x85ebca6bU;
    x = (x ^ x >> 13) * 0xc2b2ae35U;
    return (static_cast<float>((x ^ x >> 16) >> 16) + 0.5f) * 0x1p-16f;
  }

 private:
  std::uint32_t key_;
};

/// Encodes blocks of up to kQuantisedBlock values with a few bits per value.
///
/// Threads: pure; any.
class Quantiser {
 public:
  virtual ~Quantiser() = default;
  /// Returns the bytes of the codes of a block of `count` values.
  virtual std::size_t bytes(std::size_t count) const = 0;
  /// Before: values are finite, and `codes` has bytes(values.size()) bytes.
  virtual void encode(std::span<const float> values, const Dither& dither,
                      std::span<std::byte> codes) const = 0;
  /// Writes the values that all receivers see. `codes` may have any content; errors:
  /// KoloError(kInternal) if it encodes no values.
  virtual void decode(std::span<const std::byte> codes, std::span<float> values) const = 0;
};

/// Returns the smallest exponent from -126 for which largest <= most * 2^exponent. Scales are
/// powers of two, so that a code times a scale is exact.
int scale_exponent(float largest, float most);
float largest_magnitude(std::span<const float> values);
/// Encodes the exponent of a scale in one byte; `coded_exponent` is the inverse.
inline std::byte exponent_code(int exponent) { return static_cast<std::byte>(exponent + 127); }
inline int coded_exponent(std::byte code) { return std::to_integer<int>(code) - 127; }

/// Makes the quantiser of a method. A method without a threshold ignores `threshold`.
using MakeQuantiser = std::unique_ptr<Quantiser> (*)(float threshold);

/// Implement the functions of CompressionMethod for a quantised method.
std::unique_ptr<GradientCodec> make_quantised(int rank, const ProcessGrid& grid,
                                              const SparseOptions& options, MakeQuantiser make);
PayloadForms quantised_forms(const SparsePlan& plan, const Quantiser& quantiser);
ExchangeNeeds quantised_needs(const CompressedBucketShape& bucket, const CompressionCosts& costs,
                              const Quantiser& quantiser);

/// Returns `method` with the functions of a quantised method, in which each rank sends codes of all
/// values to the owners. The owners add the decoded values in float32 and in ascending rank, encode
/// the sums (under kLossless, round them to the wire dtype), and send the sums to all ranks.
/// Senders and owners keep the errors of their codes as residuals and add these in the next step.
///
/// `Code` is a Quantiser with a constructor from a threshold. For sums, the threshold is multiplied
/// by the number of ranks, so that averages have the same threshold as values.
template <typename Code>
constexpr CompressionMethod quantised(CompressionMethod method) {
  method.codes_sums = method.needs_owners = true;
  method.bucket_elements = std::size_t{1} << 20;
  method.needs = [](const CompressedBucketShape& bucket, const CompressionCosts& costs) {
    return quantised_needs(bucket, costs, Code(1.0f));
  };
  method.make_codec = [](int rank, const ProcessGrid& grid, const SparseOptions& options) {
    return make_quantised(rank, grid, options, [](float threshold) -> std::unique_ptr<Quantiser> {
      return std::make_unique<Code>(threshold);
    });
  };
  method.forms = [](const SparsePlan& plan) { return quantised_forms(plan, Code(1.0f)); };
  return method;
}

}  // namespace kolo
