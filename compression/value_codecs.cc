#include <cstdint>
#include <memory>

#include "compression/quantised_codec.h"

namespace kolo {
namespace {

/// The quantiser with one of the codes of kolo::codes.
template <typename Code>
class CodeQuantiser final : public Quantiser {
 public:
  explicit CodeQuantiser(float threshold) : threshold_(threshold) {}

  std::size_t bytes(std::size_t count) const override { return codes::bytes<Code>(count); }

  void encode(std::span<const float> values, const Dither& dither,
              std::span<std::byte> to) const override {
    const std::uint32_t header = Code::header(values.data(), values.size());
    if (Code::kHeader > 0) to[0] = static_cast<std::byte>(header);
    const Code code(header, threshold_);
    const Dither own = dither;  // `to` cannot refer to it, so the compiler makes vector code
    for (std::size_t j = Code::kHeader; j < to.size(); ++j) {
      to[j] = static_cast<std::byte>(
          codes::packed(code, values.data(), values.size(), j - Code::kHeader, own));
    }
  }

  void decode(std::span<const std::byte> from, std::span<float> values) const override {
    const Code code(Code::kHeader > 0 ? std::to_integer<std::uint32_t>(from[0]) : 0, threshold_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::byte byte = from[Code::kHeader + i / Code::kPerByte];
      values[i] = codes::unpacked(code, std::to_integer<std::uint32_t>(byte), i);
    }
  }

 private:
  float threshold_;
};

/// Returns `method` with the functions of a quantised method, in which each rank sends codes of all
/// values to the owners. The owners add the decoded values in float32 and in ascending rank, encode
/// the sums (under kLossless, round them to the wire dtype), and send the sums to all ranks.
/// Senders and owners keep the errors of their codes as residuals and add these in the next step.
///
/// For sums, the threshold is multiplied by the number of contributions. On several nodes these are
/// sums of nodes, to which the threshold applies.
template <typename Code>
constexpr CompressionMethod quantised(CompressionMethod method) {
  method.codes_sums = method.needs_owners = method.on_device = true;
  method.bucket_elements = std::size_t{1} << 20;
  method.needs = [](const CompressedBucketShape& bucket, const CompressionCosts& costs) {
    return quantised_needs(bucket, costs, CodeQuantiser<Code>(1.0f));
  };
  method.make_codec = [](int rank, const ProcessGrid& grid, const SparseOptions& options) {
    return make_quantised(rank, grid, options, Code::kKind,
                          [](float threshold) -> std::unique_ptr<Quantiser> {
                            return std::make_unique<CodeQuantiser<Code>>(threshold);
                          });
  };
  method.forms = [](const SparsePlan& plan) {
    return quantised_forms(plan, CodeQuantiser<Code>(1.0f));
  };
  return method;
}

}  // namespace

namespace methods {

constinit const CompressionMethod int8 =
    quantised<codes::Int8>({.name = "int8", .title = "8-bit", .is_close = true});
constinit const CompressionMethod fp8 =
    quantised<codes::Fp8>({.name = "fp8", .title = "8-bit float", .is_close = true});
constinit const CompressionMethod two_bit =
    quantised<codes::TwoBit>({.name = "2bit", .title = "2-bit", .takes_threshold = true});
constinit const CompressionMethod sign = quantised<codes::Sign>({.name = "sign", .title = "sign"});

}  // namespace methods
}  // namespace kolo
