#include "compression/quantised_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "comm/kernels/reduce_kernels.h"
#include "compression/payload.h"

namespace kolo {
namespace {

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

/// Encodes sums in the wire dtype. The rounding errors become residuals of their owner.
class WireSums final : public Quantiser {
 public:
  explicit WireSums(DType wire) : wire_(wire) {}

  std::size_t bytes(std::size_t count) const override { return 1 + count * size_of(wire_); }
  void encode(std::span<const float> values, const Dither&,
              std::span<std::byte> codes) const override {
    const int exponent = fitting_exponent(wire_, largest_magnitude(values));
    codes[0] = exponent_code(exponent);
    encode_values(wire_, exponent, values, codes.subspan(1));
  }
  void decode(std::span<const std::byte> codes, std::span<float> values) const override {
    const int exponent = coded_exponent(codes[0]);
    ensure(is_exponent_of(wire_, exponent), "no such exponent for a payload's sums");
    decode_values(wire_, exponent, codes.subspan(1), values);
  }

 private:
  DType wire_;
};

template <typename Visit>
void for_blocks(const SparsePlan& plan, int owner, const Visit& visit) {
  plan.for_runs(owner, [&](OwnedRun run) {
    for (std::size_t left = run.count; left > 0; left -= run.count) {
      run.count = std::min(left, kQuantisedBlock);
      visit(run);
      run.first += run.count;
      run.local += run.count;
      run.element += run.count;
    }
  });
}

std::size_t bytes_of(const SparsePlan& plan, int owner, const Quantiser& quantiser) {
  std::size_t bytes = sizeof(CodesHeader);
  for_blocks(plan, owner, [&](const OwnedRun& block) { bytes += quantiser.bytes(block.count); });
  return bytes;
}

class QuantisedCodec final : public GradientCodec {
 public:
  QuantisedCodec(int rank, const ProcessGrid& grid, const SparseOptions& options,
                 std::unique_ptr<Quantiser> values, std::unique_ptr<Quantiser> sums)
      : GradientCodec(rank, grid, options),
        rank_(rank),
        values_(std::move(values)),
        sums_(std::move(sums)),
        kept_(layout_.parts.size()) {
    for (int owner = 0; owner < layout_.plan.ranks; ++owner) {
      share_bytes_.push_back(bytes_of(layout_.plan, owner, *values_));
      result_bytes_.push_back(bytes_of(layout_.plan, owner, *sums_));
    }
  }

  void encode(const CodecElements& contribution, Payloads shares) override {
    begin_sparse(contribution);
    bool finite = true;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      const ErrorFeedback::Sums sums = feedback_.fold_in_place(i, part_at(i), 1.0f);
      kept_[i] = sums.values;
      finite &= sums.finite;
    }
    stats_.k = stats_.sent_pairs = layout_.plan.count();
    const auto values_of = [&](const OwnedRun& block) {
      return kept_[block.tensor].subspan(block.first, block.count);
    };
    for (std::size_t i = 0; i < shares.size(); ++i) {
      stats_.payload_bytes += write_header(share_bytes_[i], finite, shares[i]);
      if (finite) write(*values_, false, static_cast<int>(i), values_of, shares[i]);
    }
  }

  void merge(Payloads shares, Payloads result) override {
    const auto own = static_cast<std::size_t>(layout_.position);
    bool finite = true;
    for (const auto share : shares) finite &= read_header(share_bytes_[own], share);
    for (std::size_t i = 0; finite && i < shares.size(); ++i) {
      read(*values_, layout_.position, shares[i], [&](const OwnedRun& block, const float* values) {
        float* const sums = owned_sums_.data() + block.local;
        for (std::size_t j = 0; j < block.count; ++j) {
          sums[j] = i == 0 ? values[j] : sums[j] + values[j];
        }
      });
    }
    const ErrorFeedback::Sums kept = sums_feedback_.fold_in_place(0, owned_sums_, 1.0f);
    finite &= kept.finite;
    stats_.payload_bytes += write_header(result_bytes_[own], finite, result.front());
    const auto sums_of = [&](const OwnedRun& block) {
      return kept.values.subspan(block.local, block.count);
    };
    if (finite) write(*sums_, true, layout_.position, sums_of, result.front());
  }

  void decode(Payloads results, const CodecElements& elements, double scale) override {
    locate(elements);
    bool finite = true;
    for (std::size_t i = 0; i < results.size(); ++i) {
      finite &= read_header(result_bytes_[i], results[i]);
    }
    for (std::size_t i = 0; finite && i < results.size(); ++i) {
      read(*sums_, static_cast<int>(i), results[i], [&](const OwnedRun& block, float* values) {
        rescale(DType::kFloat32, values, block.count, scale);
        std::copy_n(values, block.count, part_at(block.tensor).data() + block.first);
      });
    }
    if (finite) {
      stats_.kept_pairs = layout_.plan.count();
    } else {
      spoil();
    }
  }

 private:
  void find_sent() override {}  // `write` already subtracts the sent values

  /// Writes the codes of an owner's blocks, and subtracts the decoded codes from the values.
  template <typename ValuesOf>
  void write(const Quantiser& quantiser, bool of_sums, int owner, const ValuesOf& values_of,
             std::span<std::byte> payload) {
    std::size_t offset = sizeof(CodesHeader);
    for_blocks(layout_.plan, owner, [&](const OwnedRun& block) {
      const std::span<float> values = values_of(block);
      const std::span codes = payload.subspan(offset, quantiser.bytes(block.count));
      quantiser.encode(values, Dither::of(stats_.steps, rank_, of_sums, block.element), codes);
      std::array<float, kQuantisedBlock> sent;
      quantiser.decode(codes, std::span(sent).first(block.count));
      for (std::size_t j = 0; j < block.count; ++j) values[j] -= sent[j];
      offset += codes.size();
    });
  }

  /// Calls visit(block, values) for the decoded blocks of an owner.
  template <typename Visit>
  void read(const Quantiser& quantiser, int owner, std::span<const std::byte> payload,
            const Visit& visit) const {
    std::size_t offset = sizeof(CodesHeader);
    for_blocks(layout_.plan, owner, [&](const OwnedRun& block) {
      const std::size_t bytes = quantiser.bytes(block.count);
      std::array<float, kQuantisedBlock> values;
      quantiser.decode(payload.subspan(offset, bytes), std::span(values).first(block.count));
      visit(block, values.data());
      offset += bytes;
    });
  }

  const int rank_;
  const std::unique_ptr<Quantiser> values_, sums_;
  std::vector<std::size_t> share_bytes_, result_bytes_;  // payload bytes by owner
  std::vector<std::span<float>> kept_;                   // pending residuals by part, within a step
};

std::unique_ptr<Quantiser> quantiser_of_sums(const SparsePlan& plan, float threshold,
                                             MakeQuantiser make) {
  if (plan.rule == QuotaRule::kLossless) return std::make_unique<WireSums>(plan.wire);
  return make(threshold * static_cast<float>(plan.ranks));
}

PayloadForm form_of(const SparsePlan& plan, const Quantiser& quantiser) {
  PayloadForm form;
  for (int owner = 0; owner < plan.ranks; ++owner) {
    form.capacity = std::max(form.capacity, bytes_of(plan, owner, quantiser));
  }
  form.usual = {.bytes = form.capacity};
  return form;
}

}  // namespace

std::size_t write_header(std::size_t used_bytes, bool finite, std::span<std::byte> payload) {
  const CodesHeader header{.used_bytes = finite ? used_bytes : sizeof(CodesHeader),
                           .not_finite = finite ? 0U : 1U};
  check(payload.size() >= header.used_bytes, "a payload's memory is smaller than planned");
  std::memcpy(payload.data(), &header, sizeof(header));
  return header.used_bytes;
}

bool read_header(std::size_t used_bytes, std::span<const std::byte> payload) {
  CodesHeader header;
  ensure(payload.size() >= sizeof(header), "a payload without a header");
  std::memcpy(&header, payload.data(), sizeof(header));
  const bool finite = header.not_finite == 0;
  ensure(header.used_bytes == (finite ? used_bytes : sizeof(header)) &&
             payload.size() >= header.used_bytes,
         "a payload of another plan");
  return finite;
}

Dither Dither::of(std::size_t step, int rank, bool of_sums, std::size_t element) {
  const auto stream = 2 * static_cast<std::uint64_t>(rank) + (of_sums ? 1 : 0);
  return Dither(mixed(mixed(mixed(step) ^ stream) ^ element));
}

float largest_magnitude(std::span<const float> values) {
  // Bits of magnitudes order like them; compilers vectorise maxima of integers only.
  std::int32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<std::int32_t>(value) & 0x7fffffff);
  }
  return std::bit_cast<float>(largest);
}

int scale_exponent(float largest, float most) {
  constexpr int kLeast = -126;  // 2^126, the inverse of this scale, is finite
  if (largest == 0.0f) return kLeast;
  const int exponent = std::max(std::ilogb(largest) - std::ilogb(most), kLeast);
  return largest <= std::ldexp(most, exponent) ? exponent : exponent + 1;
}

std::unique_ptr<GradientCodec> make_quantised(int rank, const ProcessGrid& grid,
                                              const SparseOptions& options, MakeQuantiser make) {
  const SparsePlan plan = sparse_layout(rank, grid, options).plan;
  return std::make_unique<QuantisedCodec>(rank, grid, options, make(options.threshold),
                                          quantiser_of_sums(plan, options.threshold, make));
}

PayloadForms quantised_forms(const SparsePlan& plan, const Quantiser& quantiser) {
  PayloadForms forms{.share = form_of(plan, quantiser), .result = {}, .contribution = {}};
  forms.result =
      plan.rule == QuotaRule::kLossless ? form_of(plan, WireSums(plan.wire)) : forms.share;
  return forms;
}

// Encoding is one pass that reads two arrays and writes one. Decoding of shares and results, with
// the encoding of sums, costs as much as another pass.
ExchangeNeeds quantised_needs(const CompressedBucketShape& bucket, const CompressionCosts& costs,
                              const Quantiser& quantiser) {
  const auto count = static_cast<double>(bucket.count);
  const double bytes = count * static_cast<double>(quantiser.bytes(kQuantisedBlock)) /
                       static_cast<double>(kQuantisedBlock);
  return {.contribution_bytes = bytes,
          .result_bytes = bucket.sum_bytes > 0 ? count * bucket.sum_bytes : bytes,
          .pass_us = 2 * 12 * count / costs.selector_bytes_per_us};
}

}  // namespace kolo
