#include "compression/compression_method.h"

namespace kolo {
namespace {

ExchangeNeeds dense_needs(const CompressedBucketShape& bucket, const CompressionCosts&) {
  const double bytes = 4 * static_cast<double>(bucket.count);
  return {.contribution_bytes = bytes, .result_bytes = bytes};
}

// A cast to the wire dtype and back moves as many bytes as reading two arrays and writing one.
ExchangeNeeds cast_needs(const CompressedBucketShape& bucket, const CompressionCosts& costs) {
  const double bytes = 2 * static_cast<double>(bucket.count);
  return {.contribution_bytes = bytes,
          .result_bytes = bytes,
          .pass_us = 12 * static_cast<double>(bucket.count) / costs.selector_bytes_per_us};
}

}  // namespace

namespace methods {

constinit const CompressionMethod none{
    .name = "none", .title = "dense", .competes = true, .needs = dense_needs};
/// For `auto` it represents both 16-bit dtypes; the spec's `wire` selects one.
constinit const CompressionMethod fp16{.name = "fp16",
                                       .title = "dense 16-bit",
                                       .competes = true,
                                       .wire = DType::kFloat16,
                                       .needs = cast_needs};
constinit const CompressionMethod bf16{
    .name = "bf16", .title = "dense 16-bit", .wire = DType::kBFloat16, .needs = cast_needs};
constinit const CompressionMethod automatic{
    .name = "auto", .title = "auto", .takes_density = true, .is_open = true};

}  // namespace methods

std::span<const CompressionMethod* const> compression_methods() {
#define KOLO_METHOD_ADDRESS(name) &methods::name,
  static constexpr const CompressionMethod* kAll[] = {
      KOLO_COMPRESSION_METHODS(KOLO_METHOD_ADDRESS)};
#undef KOLO_METHOD_ADDRESS
  return kAll;
}

}  // namespace kolo
