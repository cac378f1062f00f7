#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/kernels/value_codes.h"
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

using codes::Dither;

/// Encodes blocks of up to codes::kBlock values with a few bits per value.
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

/// Makes the quantiser of a method. A method without a threshold ignores `threshold`.
using MakeQuantiser = std::unique_ptr<Quantiser> (*)(float threshold);

/// Implement the functions of CompressionMethod for a quantised method. `kind` is the code of its
/// quantisers, by which a device encodes.
std::unique_ptr<GradientCodec> make_quantised(int rank, const ProcessGrid& grid,
                                              const SparseOptions& options, codes::Kind kind,
                                              MakeQuantiser make);
PayloadForms quantised_forms(const SparsePlan& plan, const Quantiser& quantiser);
ExchangeNeeds quantised_needs(const CompressedBucketShape& bucket, const CompressionCosts& costs,
                              const Quantiser& quantiser);

}  // namespace kolo
