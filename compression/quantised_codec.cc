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

/// Encodes sums in the wire dtype. The rounding errors become residuals of their owner.
class WireSums final : public Quantiser {
 public:
  explicit WireSums(DType wire) : wire_(wire) {}

  std::size_t bytes(std::size_t count) const override { return 1 + count * size_of(wire_); }
  void encode(std::span<const float> values, const Dither&,
              std::span<std::byte> to) const override {
    const int exponent =
        fitting_exponent(wire_, codes::largest_magnitude(values.data(), values.size()));
    to[0] = static_cast<std::byte>(exponent + kBias);
    encode_values(wire_, exponent, values, to.subspan(1));
  }
  void decode(std::span<const std::byte> from, std::span<float> values) const override {
    const int exponent = std::to_integer<int>(from[0]) - kBias;
    ensure(is_exponent_of(wire_, exponent), "no such exponent for a payload's sums");
    decode_values(wire_, exponent, from.subspan(1), values);
  }

 private:
  static constexpr int kBias = 127;

  DType wire_;
};

template <typename Visit>
void for_blocks(const SparsePlan& plan, int owner, const Visit& visit) {
  plan.for_runs(owner, [&](OwnedRun run) {
    for (std::size_t left = run.count; left > 0; left -= run.count) {
      run.count = std::min(left, codes::kBlock);
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
  QuantisedCodec(int rank, const ProcessGrid& grid, const SparseOptions& options, codes::Kind kind,
                 std::unique_ptr<Quantiser> values, std::unique_ptr<Quantiser> sums)
      : GradientCodec(rank, grid, options),
        rank_(rank),
        kind_(kind),
        values_(std::move(values)),
        sums_(std::move(sums)),
        kept_(layout_.parts.size()) {
    for (int owner = 0; owner < layout_.plan.ranks; ++owner) {
      share_bytes_.push_back(bytes_of(layout_.plan, owner, *values_));
      result_bytes_.push_back(bytes_of(layout_.plan, owner, *sums_));
    }
    if (options.device != nullptr) device_.emplace(options.device->device, layout_.plan, *values_);
  }

  void select(Stream& stream, const CodecElements& contribution) override {
    begin_sparse(contribution);
    std::uint32_t* const flag = device_->flag.begin(stream);
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      const std::span<const CodedBlock> blocks = device_->blocks_of(i);
      const std::span<float> sums = feedback_.fold(stream, i, part_at(i), 0, {.non_finite = flag});
      options_.device->device.kernels().quantise(
          stream, {.kind = kind_,
                   .threshold = options_.threshold,
                   .seed = Dither::seed(stats_.steps, rank_, false),
                   .values = sums.data(),
                   .out = reinterpret_cast<std::uint8_t*>(device_->codes.data()),
                   .blocks = blocks.data(),
                   .block_count = blocks.size(),
                   .non_finite = flag});
    }
    device_->flag.end(stream);
    stream.copy(OnDevice::all(device_->here), OnDevice::all(device_->codes));
  }

  void encode(const CodecElements& contribution, Payloads shares) override {
    bool finite = true;
    if (device_) {
      finite = !device_->flag.is_raised();
    } else {
      begin_sparse(contribution);
      for (std::size_t i = 0; i < kept_.size(); ++i) {
        const ErrorFeedback::Sums sums = feedback_.fold_in_place(i, part_at(i), 1.0f);
        kept_[i] = sums.values;
        finite &= sums.finite;
      }
    }
    stats_.k = stats_.sent_pairs = layout_.plan.count();
    const auto values_of = [&](const OwnedRun& block) {
      return kept_[block.tensor].subspan(block.first, block.count);
    };
    const std::byte* selected = device_ ? device_->here.data() : nullptr;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      stats_.payload_bytes += write_header(share_bytes_[i], finite, shares[i]);
      if (!finite) continue;
      if (!device_) {
        write(*values_, false, static_cast<int>(i), values_of, shares[i]);
        continue;
      }
      const std::size_t bytes = share_bytes_[i] - sizeof(CodesHeader);
      std::copy_n(selected, bytes, shares[i].data() + sizeof(CodesHeader));
      selected += bytes;
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
    locate(device_ ? staged() : elements);
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

  void scatter(Stream& stream, const CodecElements& elements) override {
    stream.copy({elements.data, elements.count, DType::kFloat32, MemoryKind::kDevice},
                {staged().data, elements.count, DType::kFloat32, MemoryKind::kPinned});
  }

 private:
  /// The codes between the device and the processor, those for all owners one after the other.
  struct OnDevice {
    OnDevice(Device& device, const SparsePlan& plan, const Quantiser& quantiser)
        : flag(device), ends(plan.tensor_counts.size()) {
      std::vector<std::vector<CodedBlock>> parts(ends.size());
      std::size_t bytes = 0;
      for (int owner = 0; owner < plan.ranks; ++owner) {
        for_blocks(plan, owner, [&](const OwnedRun& run) {
          parts[run.tensor].push_back(
              {.first = run.first, .count = run.count, .element = run.element, .offset = bytes});
          bytes += quantiser.bytes(run.count);
        });
      }
      std::vector<CodedBlock> all_parts;
      for (std::size_t i = 0; i < ends.size(); ++i) {
        all_parts.insert(all_parts.end(), parts[i].begin(), parts[i].end());
        ends[i] = all_parts.size();
      }
      blocks = device.allocate(all_parts.size() * sizeof(CodedBlock), MemoryKind::kPinned);
      std::ranges::copy(all_parts, reinterpret_cast<CodedBlock*>(blocks.data()));
      codes = device.allocate(bytes, MemoryKind::kDevice);
      here = device.allocate(bytes, MemoryKind::kPinned);
    }

    static BufferView all(const DeviceMemory& memory) {
      return {memory.data(), memory.bytes(), DType::kUInt8, memory.kind()};
    }
    std::span<const CodedBlock> blocks_of(std::size_t part) const {
      const std::size_t begin = part > 0 ? ends[part - 1] : 0;
      return {reinterpret_cast<const CodedBlock*>(blocks.data()) + begin, ends[part] - begin};
    }

    DeviceFlag flag;                // raised if a value is not finite
    std::vector<std::size_t> ends;  // of each part's blocks
    DeviceMemory blocks;            // pinned
    DeviceMemory codes, here;       // what `select` encodes, and its copy for the processor
  };

  void find_sent() override {}  // `write` and `select` already subtract the sent values

  /// Writes the codes of an owner's blocks, and subtracts the decoded codes from the values.
  template <typename ValuesOf>
  void write(const Quantiser& quantiser, bool of_sums, int owner, const ValuesOf& values_of,
             std::span<std::byte> payload) {
    std::size_t offset = sizeof(CodesHeader);
    for_blocks(layout_.plan, owner, [&](const OwnedRun& block) {
      const std::span<float> values = values_of(block);
      const std::span codes = payload.subspan(offset, quantiser.bytes(block.count));
      quantiser.encode(values, Dither::of(stats_.steps, rank_, of_sums, block.element), codes);
      std::array<float, codes::kBlock> sent;
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
      std::array<float, codes::kBlock> values;
      quantiser.decode(payload.subspan(offset, bytes), std::span(values).first(block.count));
      visit(block, values.data());
      offset += bytes;
    });
  }

  const int rank_;
  const codes::Kind kind_;
  const std::unique_ptr<Quantiser> values_, sums_;
  std::vector<std::size_t> share_bytes_, result_bytes_;  // payload bytes by owner
  std::vector<std::span<float>> kept_;                   // pending residuals by part, within a step
  std::optional<OnDevice> device_;                       // empty in host memory
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

std::unique_ptr<GradientCodec> make_quantised(int rank, const ProcessGrid& grid,
                                              const SparseOptions& options, codes::Kind kind,
                                              MakeQuantiser make) {
  const SparsePlan plan = sparse_layout(rank, grid, options).plan;
  return std::make_unique<QuantisedCodec>(rank, grid, options, kind, make(options.threshold),
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
  const double bytes = count * static_cast<double>(quantiser.bytes(codes::kBlock)) /
                       static_cast<double>(codes::kBlock);
  return {.contribution_bytes = bytes,
          .result_bytes = bucket.sum_bytes > 0 ? count * bucket.sum_bytes : bytes,
          .pass_us = 2 * 12 * count / costs.selector_bytes_per_us};
}

}  // namespace kolo
