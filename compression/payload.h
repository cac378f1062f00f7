#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/base/dtype.h"

namespace kolo {

/// The encoding of values in a sparse payload: float32, bfloat16, or float16 multiplied by a power
/// of two, so that neither large nor small values exceed its range.
///
/// Split:   v = decode(encode(a)) and r = a - v add up to a exactly, because both are multiples of
///          the last place of a, and r is smaller than v or a. This holds for every finite a up to
///          twice the largest value of the wire at that exponent; with `fitting_exponent` that is
///          every value.
/// Threads: pure; any.

/// Returns the exponent at which `largest`, a finite magnitude, is in the upper half of float16's
/// range, except for one bit. No value up to `largest` saturates (beyond 2^127 by less than a last
/// place), and values 2^-38 times as large remain nonzero. Zero for the other dtypes.
int fitting_exponent(DType wire, float largest);

/// True if values of dtype `wire` can have this exponent.
bool is_exponent_of(DType wire, int exponent);

/// out[i] = round(values[i] * 2^exponent), to nearest even, with one rounding. A value beyond the
/// range of `wire` becomes the largest finite value of the same sign.
///
/// Shape:   `out` has values.size() elements of `wire`, at any alignment.
/// Before:  values are finite. Errors: UsageError for another dtype than the three, or an exponent
///          that `fitting_exponent` cannot return.
void encode_values(DType wire, int exponent, std::span<const float> values,
                   std::span<std::byte> out);

/// values[i] = in[i] * 2^-exponent, exactly.
void decode_values(DType wire, int exponent, std::span<const std::byte> in,
                   std::span<float> values);

/// Returns the values that the receiver decodes: decode(encode(values)). `rounded` may be `values`.
void round_to_wire(DType wire, int exponent, std::span<const float> values,
                   std::span<float> rounded);

/// Encodings of the ascending indices of a sparse payload.
enum class IndexCoding : std::uint8_t {
  kU32,
  kU16Pages,  ///< For each page of 64 Ki, its number of indices (32 bits); then 16 bits per index.
};

inline constexpr std::size_t kIndexPage = std::size_t{1} << 16;

/// Returns the encoding that takes fewer bytes for `count` indices below `domain`.
IndexCoding smaller_coding(std::size_t domain, std::size_t count);

/// Returns the exact number of bytes for `count` indices below `domain`.
std::size_t index_bytes(IndexCoding coding, std::size_t domain, std::size_t count);

/// Shape:   `out` has index_bytes bytes, at any alignment.
/// Before:  indices ascend and are below `domain`, which is at most 2^32.
/// Threads: pure; any.
/// Errors:  UsageError if `out` has another size.
void encode_indices(IndexCoding coding, std::size_t domain, std::span<const std::uint32_t> indices,
                    std::span<std::byte> out);

/// The inverse of `encode_indices`. Errors: KoloError(kInternal) if the pages do not hold
/// indices.size() indices, or an index is not below `domain`.
void decode_indices(IndexCoding coding, std::size_t domain, std::span<const std::byte> in,
                    std::span<std::uint32_t> indices);

/// The number and exponent of one tensor's pairs in a payload; segments are in tensor order.
struct PayloadSegment {
  std::uint32_t pairs = 0;
  /// Exponent of the values; equal in all payloads of one sender and step.
  std::int32_t exponent = 0;
  friend bool operator==(const PayloadSegment&, const PayloadSegment&) = default;
};

/// The layout of payloads between two ranks, planned once and equal on both:
///
///     | header: used bytes, finite, pairs | segment 0 | ... | values | to 4 bytes | indices |
///
/// The memory of a payload has the planned capacity, so that schedules do not depend on the data;
/// only its first `used_bytes` are sent.
struct PayloadPlan {
  DType wire = DType::kFloat16;
  IndexCoding coding = IndexCoding::kU32;
  std::size_t domain = 0;      ///< All indices are below this.
  std::size_t segments = 1;    ///< Number of tensors in the payload.
  std::size_t most_pairs = 0;  ///< Largest number of pairs in one payload.

  /// Returns the bytes of a payload with `pairs` pairs.
  std::size_t bytes(std::size_t pairs) const;
  std::size_t capacity() const { return bytes(most_pairs); }
  friend bool operator==(const PayloadPlan&, const PayloadPlan&) = default;
};

/// Ascending indices of elements, and the elements' values.
struct Pairs {
  std::vector<std::uint32_t> indices = {};
  std::vector<float> values = {};

  std::size_t size() const { return indices.size(); }
  void clear() {
    indices.clear();
    values.clear();
  }
  void add(std::uint32_t index, float value) {
    indices.push_back(index);
    values.push_back(value);
  }
  /// Reserves memory, so that adding up to `count` pairs allocates nothing.
  void reserve(std::size_t count) {
    indices.reserve(count);
    values.reserve(count);
  }
  friend bool operator==(const Pairs&, const Pairs&) = default;
};

/// A view of pairs owned by another object.
struct PairsView {
  std::span<const std::uint32_t> indices = {};
  std::span<const float> values = {};

  PairsView() = default;
  PairsView(std::span<const std::uint32_t> its_indices, std::span<const float> its_values)
      : indices(its_indices), values(its_values) {}
  PairsView(const Pairs& pairs) : indices(pairs.indices), values(pairs.values) {}

  std::size_t size() const { return indices.size(); }
  PairsView part(std::size_t first, std::size_t count) const {
    return {indices.subspan(first, count), values.subspan(first, count)};
  }
};

/// Writes `pairs` to the front of `out`, each value with the exponent of its segment. Returns the
/// bytes used, which the header also holds.
///
/// Shape:   `out` has at least the plan's capacity; segments' counts add up to pairs.size().
/// Threads: pure; any.
/// Errors:  UsageError for other shapes or more pairs than planned; as `encode_values` and
///          `encode_indices`.
std::size_t encode_payload(const PayloadPlan& plan, std::span<const PayloadSegment> segments,
                           const PairsView& pairs, std::span<std::byte> out);
/// Writes a payload without pairs. It reports that this rank, or a rank whose payload this rank has
/// received, has a number that is not finite, so that there is no result.
std::size_t encode_not_finite(const PayloadPlan& plan, std::span<std::byte> out);
bool is_finite(const PayloadPlan& plan, std::span<const std::byte> payload);

/// Returns the used bytes at the front of `payload`, which holds at least a header. Errors:
/// KoloError(kInternal) if they do not match the plan.
std::size_t used_bytes(const PayloadPlan& plan, std::span<const std::byte> payload);

/// The inverse of `encode_payload`; reuses the memory of `pairs`. Errors: KoloError(kInternal) if
/// `payload` does not match the plan.
void decode_payload(const PayloadPlan& plan, std::span<const std::byte> payload, Pairs& pairs);

}  // namespace kolo
