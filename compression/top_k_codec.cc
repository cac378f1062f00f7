#include <algorithm>
#include <limits>
#include <memory>

#include "comm/kernels/reduce_kernels.h"
#include "compression/device_feedback.h"
#include "compression/gradient_codec.h"

namespace kolo {
namespace {

/// Sends the largest sums as pairs of value and index.
class TopKCodec final : public GradientCodec {
 public:
  TopKCodec(int rank, const ProcessGrid& grid, const SparseOptions& options)
      : GradientCodec(rank, grid, options),
        ownership_(layout_.plan.ownership()),
        share_plan_(layout_.plan.share()),
        result_plan_(layout_.plan.result()),
        contribution_plan_(layout_.plan.contribution()),
        step_plan_(layout_.plan),
        sum_(gathers() ? layout_.plan.count() : ownership_.local_count(layout_.position)) {
    reserve();
    if (options.device != nullptr) device_.emplace(options.device->device, *this);
  }

  void select(Stream& stream, const CodecElements& contribution) override {
    begin_sparse(contribution);
    choose_pairs();
    const BufferView pairs = device_->pairs(device_->selected, stats_.k);
    auto* const indices = static_cast<std::uint32_t*>(pairs.data);
    auto* const values = reinterpret_cast<float*>(indices + stats_.k);
    std::uint32_t* const flag = device_->flag.begin(stream);
    std::size_t at = 0;
    for (std::size_t i = 0; i < keep_.size(); at += keep_[i++]) {
      feedback_.fold(stream, i, part_at(i), keep_[i],
                     {.indices = indices + at, .values = values + at, .non_finite = flag});
    }
    device_->flag.end(stream);
    stream.copy(device_->pairs(device_->here, stats_.k), pairs);
  }

  void encode(const CodecElements& contribution, Payloads payloads) override {
    if (!device_) begin_sparse(contribution);
    if (!(device_ ? take_selected() : select_here())) {
      const PayloadPlan& plan = gathers() ? contribution_plan_ : share_plan_;
      for (const std::span<std::byte> payload : payloads) {
        stats_.payload_bytes += encode_not_finite(plan, payload);
      }
      return;
    }
    prepare(step_plan_, contribution_);
    stats_.sent_pairs = stats_.k;
    if (gathers()) {
      whole(step_plan_, contribution_, whole_);
      stats_.payload_bytes +=
          encode_payload(contribution_plan_, whole_.segments, whole_.pairs, payloads.front());
      return;
    }
    split(step_plan_, contribution_, shares_);
    for (std::size_t i = 0; i < payloads.size(); ++i) {
      const int owner = static_cast<int>(i);
      stats_.payload_bytes += encode_payload(share_plan_, shares_.segments_of(owner),
                                             shares_.pairs_of(owner), payloads[i]);
    }
  }

  void merge(Payloads sources, Payloads sum) override {
    const PayloadPlan& plan = gathers() ? contribution_plan_ : share_plan_;
    sum_is_finite_ = true;
    for (const std::span<std::byte> source : sources) sum_is_finite_ &= is_finite(plan, source);
    if (sum_is_finite_) {
      for (const std::span<std::byte> source : sources) {
        decode_payload(plan, source, decoded_);
        sum_.add(decoded_);
      }
    }
    sum_.take(sums_);
    if (gathers()) {
      by_owner(ownership_, sums_, owners_);
      for (std::size_t i = 0; i < sum.size(); ++i)
        finish_owner(static_cast<int>(i), owners_[i], sum[i]);
    } else {
      finish_owner(layout_.position, sums_, sum.front());
    }
  }

  void decode(Payloads results, const CodecElements& elements, double scale) override {
    if (device_) {
      for (Pairs& part : device_->scattered) part.clear();
    } else {
      locate(elements);
      // Most elements of the result are zero.
      for (std::size_t i = 0; i < layout_.parts.size(); ++i) std::ranges::fill(part_at(i), 0.0f);
    }
    const bool finite = std::ranges::all_of(results, [&](std::span<const std::byte> result) {
      return is_finite(result_plan_, result);
    });
    if (!finite && device_) {
      device_->scattered.front().add(0, std::numeric_limits<float>::quiet_NaN());  // as `spoil`
      return;
    }
    if (!finite) return spoil();
    for (Pairs& owner : owners_) owner.clear();
    for (std::size_t i = 0; i < results.size(); ++i) {
      decode_payload(result_plan_, results[i], owners_[i]);
      std::vector<float>& values = owners_[i].values;
      rescale(DType::kFloat32, values.data(), values.size(), scale);
      put(static_cast<int>(i), owners_[i]);
      stats_.kept_pairs += owners_[i].size();
    }
  }

  void scatter(Stream& stream, const CodecElements& elements) override {
    locate(elements);
    device_->results.restart();
    device_->lists.clear();
    for (const Pairs& part : device_->scattered) {
      device_->lists.push_back(device_->results.add(part));
    }
    device_->results.upload(stream);
    for (std::size_t i = 0; i < layout_.parts.size(); ++i) {
      const DevicePairs::List& list = device_->lists[i];
      const std::span<float> part = part_at(i);
      options_.device->device.kernels().spread_rows(stream, list.indices, list.values,
                                                    sizeof(float), part.data(), part.size());
    }
  }

 private:
  /// The memory of pairs between the device and the processor.
  struct OnDevice {
    OnDevice(Device& device, const TopKCodec& codec)
        : flag(device),
          selected(device.allocate(2 * codec.layout_.plan.k * kWord, MemoryKind::kDevice)),
          here(device.allocate(2 * codec.layout_.plan.k * kWord, MemoryKind::kPinned)),
          scattered(codec.layout_.parts.size()),
          results(device, codec.most_results()) {
      lists.reserve(scattered.size());
      for (std::size_t i = 0; i < scattered.size(); ++i) {
        scattered[i].reserve(std::min(codec.most_results(), codec.layout_.parts[i].count));
      }
    }
    static constexpr std::size_t kWord = sizeof(std::uint32_t);

    /// Returns the memory of k pairs: indices, then values.
    static BufferView pairs(const DeviceMemory& memory, std::size_t k) {
      return {memory.data(), 2 * k, DType::kFloat32, memory.kind()};
    }

    DeviceFlag flag;               // raised if a selected sum is not finite
    DeviceMemory selected, here;   // what `select` selects, and its copy for the processor
    std::vector<Pairs> scattered;  // by part, what `scatter` writes
    DevicePairs results;
    std::vector<DevicePairs::List> lists;  // of `scattered`, in `results`
  };

  /// Returns the largest number of pairs in the results of all owners; at least one, for `spoil`.
  std::size_t most_results() const {
    const std::size_t most = static_cast<std::size_t>(layout_.plan.ranks) * result_plan_.most_pairs;
    return std::max<std::size_t>(1, std::min(most, layout_.plan.count()));
  }

  void find_sent() override { returned(step_plan_, contribution_, owners_, cursors_, sent_); }

  void reserve() {
    const std::size_t parts = layout_.parts.size();
    const auto ranks = static_cast<std::size_t>(layout_.plan.ranks);
    const std::size_t k = layout_.plan.k;
    const std::size_t summed = std::min(ranks * (gathers() ? k : share_plan_.most_pairs),
                                        gathers() ? layout_.plan.count() : share_plan_.domain);
    keep_.resize(parts);
    contribution_.tensors.resize(parts);
    contribution_.exponents.reserve(parts);
    for (std::size_t i = 0; i < parts; ++i) {
      const std::size_t most = std::min(k, layout_.parts[i].count);
      contribution_.tensors[i].reserve(most);
      sent_[i].reserve(most);
    }
    (gathers() ? whole_.pairs : shares_.pairs).reserve(k);
    decoded_.reserve(gathers() ? k : share_plan_.most_pairs);
    sums_.reserve(summed);
    keys_.reserve(summed);
    quotas_.reserve(parts);
    owners_.resize(ranks);
    for (Pairs& owner : owners_) {
      owner.reserve(gathers() ? std::min(ranks * k, share_plan_.domain) : result_plan_.most_pairs);
    }
  }

  /// Sets the number of pairs of each part in this step.
  void choose_pairs() {
    const std::optional<double> density = this->density();
    ensure(density.has_value(), "a sparse schedule in a dense step");
    for (std::size_t i = 0; i < layout_.parts.size(); ++i) {
      keep_[i] = pairs_to_keep(*density, layout_.parts[i].count);
      stats_.k += keep_[i];
    }
    step_plan_.k = stats_.k;
  }

  /// Selects a contribution in host memory. Returns whether all sums are finite.
  bool select_here() {
    choose_pairs();
    bool finite = true;
    for (std::size_t i = 0; i < keep_.size(); ++i) {
      finite &= feedback_.fold(i, part_at(i), 1.0f, keep_[i], contribution_.tensors[i]).finite;
    }
    return finite;
  }

  /// Takes what `select` has selected on the device.
  bool take_selected() {
    const auto* indices = reinterpret_cast<const std::uint32_t*>(device_->here.data());
    const auto* values = reinterpret_cast<const float*>(indices + stats_.k);
    for (std::size_t i = 0; i < keep_.size(); ++i) {
      Pairs& part = contribution_.tensors[i];
      part.indices.assign(indices, indices + keep_[i]);
      part.values.assign(values, values + keep_[i]);
      indices += keep_[i];
      values += keep_[i];
    }
    return !device_->flag.is_raised();
  }

  /// Selects from an owner's sums and encodes the selection.
  void finish_owner(int owner, Pairs& sums, std::span<std::byte> result) {
    if (options_.rule == QuotaRule::kQuota) {
      quota_parts(step_plan_, owner, quotas_);
      keep_largest(sums, quotas_, keys_);
    }
    const bool is_own = owner == layout_.position;
    if (!sum_is_finite_ || !are_finite(sums.values)) {
      const std::size_t bytes = encode_not_finite(result_plan_, result);
      if (is_own) stats_.payload_bytes += bytes;
      return;
    }
    const PayloadSegment segment{.pairs = narrow<std::uint32_t>(sums.size())};
    const std::size_t bytes = encode_payload(result_plan_, {&segment, 1}, sums, result);
    if (is_own) stats_.payload_bytes += bytes;
  }

  void put(int owner, const Pairs& result) {
    std::size_t part = 0;
    std::size_t begin = 0;
    for (std::size_t j = 0; j < result.size(); ++j) {
      const std::size_t element = ownership_.element(owner, result.indices[j]);
      while (element >= begin + layout_.parts[part].count) begin += layout_.parts[part++].count;
      const std::size_t place = element - begin;
      if (device_) {
        device_->scattered[part].add(static_cast<std::uint32_t>(place), result.values[j]);
      } else {
        part_at(part)[place] = result.values[j];
      }
    }
  }

  const BlockOwnership ownership_;
  const PayloadPlan share_plan_, result_plan_, contribution_plan_;
  SparsePlan step_plan_;  // `layout_.plan` with the k of this step

  std::optional<OnDevice> device_;  // empty in host memory

  // Memory that is used only within a step.
  std::vector<std::size_t> keep_;  // by part, the number of pairs to select
  Contribution contribution_;
  Shares shares_;
  Share whole_;
  Pairs decoded_;
  OwnerSum sum_;
  Pairs sums_;                 // sums of this owner, or of all owners with indices of the bucket
  std::vector<Pairs> owners_;  // sums by owner, later results by owner
  std::vector<std::uint32_t> keys_;
  std::vector<QuotaPart> quotas_;
  std::vector<std::size_t> cursors_;
  bool sum_is_finite_ = true;
};

// --- Payloads and costs -------------------------------------------------------------------------

PayloadForm form_of(const PayloadPlan& plan, std::size_t usual_pairs) {
  return {.capacity = plan.capacity(),
          .usual = {.bytes = plan.bytes(usual_pairs), .entries = usual_pairs}};
}

PayloadForms forms(const SparsePlan& plan) {
  return {.share = form_of(plan.share(), plan.usual_share_pairs()),
          .result = form_of(plan.result(), plan.usual_result_pairs()),
          .contribution = form_of(plan.contribution(), plan.k)};
}

// Selection is one pass that reads two arrays and writes one.
ExchangeNeeds needs(const CompressedBucketShape& bucket, const CompressionCosts& costs) {
  const auto pairs = static_cast<double>(bucket.pairs);
  return {.contribution_bytes = pairs * bucket.pair_bytes,
          .result_bytes = pairs * bucket.result_pair_bytes,
          .pass_us = 12 * static_cast<double>(bucket.count) / costs.selector_bytes_per_us,
          .sum_us = pairs * costs.pair_us};
}

}  // namespace

constinit const CompressionMethod methods::topk{.name = "topk",
                                                .title = "top-k",
                                                .takes_density = true,
                                                .competes = true,
                                                .on_device = true,
                                                .needs = needs,
                                                .make_codec = make_codec<TopKCodec>,
                                                .forms = forms};

}  // namespace kolo
