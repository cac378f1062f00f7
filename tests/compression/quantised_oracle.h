#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "compression/payload.h"
#include "compression/quantised_codec.h"
#include "tests/compression/sparse_numbers.h"

/// Reference of quantised all-reduces in plain arithmetic, without payloads and schedules.
namespace kolo::test {

/// The codes of a block, and the values that receivers decode.
struct PlainCodes {
  std::vector<std::uint8_t> codes;
  std::vector<float> sent;
};
using PlainCoder = PlainCodes (*)(const std::vector<float>& block, const Dither&, float threshold);

inline std::uint8_t plain_exponent(const std::vector<float>& block, float most, float& scale) {
  float largest = 0;
  for (const float value : block) largest = std::max(largest, std::fabs(value));
  int exponent = -126;
  while (largest > std::ldexp(most, exponent)) ++exponent;
  scale = std::ldexp(1.0f, exponent);
  return static_cast<std::uint8_t>(exponent + 127);
}

inline PlainCodes plain_int8(const std::vector<float>& block, const Dither& dither, float) {
  PlainCodes result;
  float scale = 0;
  result.codes.push_back(plain_exponent(block, 127.0f, scale));
  for (std::size_t i = 0; i < block.size(); ++i) {
    const float code = std::floor(block[i] / scale + dither(i));
    result.codes.push_back(static_cast<std::uint8_t>(static_cast<int>(code)));
    result.sent.push_back(code * scale);
  }
  return result;
}

/// Follows gradient_compression-inl.h of MXNet.
inline PlainCodes plain_two_bit(const std::vector<float>& block, const Dither&, float threshold) {
  constexpr std::uint8_t kPositive[] = {0xc0, 0x30, 0x0c, 0x03};
  constexpr std::uint8_t kNegative[] = {0x80, 0x20, 0x08, 0x02};
  PlainCodes result;
  result.codes.resize((block.size() + 3) / 4);
  for (std::size_t i = 0; i < block.size(); ++i) {
    std::uint8_t& byte = result.codes[i >> 2];
    float sent = 0;
    if (block[i] >= threshold) {
      byte = static_cast<std::uint8_t>(byte | kPositive[i & 3]);
      sent = threshold;
    } else if (block[i] <= -threshold) {
      byte = static_cast<std::uint8_t>(byte | kNegative[i & 3]);
      sent = -threshold;
    }
    result.sent.push_back(sent);
  }
  return result;
}

/// Returns the magnitude of an e4m3 code, by the definition of the format.
inline double plain_e4m3(int code) {
  const int exponent = code / 8, fraction = code % 8;
  return exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
}

inline PlainCodes plain_fp8(const std::vector<float>& block, const Dither& dither, float) {
  PlainCodes result;
  float scale = 0;
  result.codes.push_back(plain_exponent(block, 448.0f, scale));
  for (std::size_t i = 0; i < block.size(); ++i) {
    const double magnitude = std::fabs(double{block[i]}) / double{scale};
    int code = 0;
    while (code < 126 && plain_e4m3(code + 1) <= magnitude) ++code;
    const double rest = (magnitude - plain_e4m3(code)) / (plain_e4m3(code + 1) - plain_e4m3(code));
    if (rest + double{dither(i)} >= 1) ++code;
    const bool negative = std::signbit(block[i]);
    result.codes.push_back(static_cast<std::uint8_t>(code + (negative ? 128 : 0)));
    const float sent = static_cast<float>(plain_e4m3(code)) * scale;
    result.sent.push_back(negative ? -sent : sent);
  }
  return result;
}

inline PlainCodes plain_sign(const std::vector<float>& block, const Dither&, float) {
  PlainCodes result{.codes = std::vector<std::uint8_t>(1 + (block.size() + 7) / 8),
                    .sent = std::vector<float>(block.size())};
  double mean = 0;
  for (const float value : block) mean += std::fabs(double{value});
  mean /= static_cast<double>(block.size());
  if (mean == 0) return result;
  int exponent = -126;  // nearest in the logarithm: the mean is below sqrt(2) times the scale
  while (exponent < 127 && mean >= std::ldexp(std::sqrt(2.0), exponent)) ++exponent;
  result.codes[0] = static_cast<std::uint8_t>(exponent + 127);
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (block[i] < 0) {
      std::uint8_t& byte = result.codes[1 + i / 8];
      byte = static_cast<std::uint8_t>(byte + (1 << i % 8));
    }
    result.sent[i] = std::ldexp(block[i] < 0 ? -1.0f : 1.0f, exponent);
  }
  return result;
}

/// The reference of a method, and the most bytes of its codes as a share of float32's.
struct PlainMethod {
  PlainCoder code;
  double most_bytes;
};
inline const std::map<std::string_view, PlainMethod>& plain_methods() {
  static const std::map<std::string_view, PlainMethod> all = {{"int8", {plain_int8, 0.26}},
                                                              {"2bit", {plain_two_bit, 0.07}},
                                                              {"fp8", {plain_fp8, 0.26}},
                                                              {"sign", {plain_sign, 0.04}}};
  return all;
}

/// The all-reduce of a quantised method between all ranks (SparseScope::kFlat), with residuals of
/// values and of sums.
class QuantisedOracle {
 public:
  QuantisedOracle(const SparseOptions& options, int ranks)
      : options_(options), ranks_(ranks), ownership_(bucket_count(options), ranks) {
    for (std::size_t t = 0; t < options.tensors.size(); ++t) {
      tensor_of_.insert(tensor_of_.end(), options.tensors[t].count, t);
    }
    kept_.assign(static_cast<std::size_t>(ranks), std::vector<float>(ownership_.count()));
    kept_sums_.assign(ownership_.count(), 0.0f);
  }

  const std::vector<float>& output() const { return output_; }
  /// Return the residuals of one rank's values and of all owners' sums, by element of the bucket.
  const std::vector<float>& kept(int rank) const { return kept_[static_cast<std::size_t>(rank)]; }
  const std::vector<float>& kept_sums() const { return kept_sums_; }
  int owner(std::size_t element) const { return ownership_.owner(element); }
  /// Returns the codes of the last step, by rank.
  const std::vector<std::vector<std::uint8_t>>& codes() const { return codes_; }

  void step(const std::vector<Tensors>& gradients, std::size_t number) {
    std::vector<float> sums(ownership_.count());
    codes_.assign(gradients.size(), {});
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      add(kept_[r], gradients[r]);
      std::size_t e = 0;
      for_blocks([&](std::size_t begin, std::size_t end) {
        const PlainCodes coded = coder()(
            part(kept_[r], begin, end), Dither::of(number, rank, false, begin), options_.threshold);
        codes_[r].insert(codes_[r].end(), coded.codes.begin(), coded.codes.end());
        for (const float sent : coded.sent) {
          kept_[r][e] -= sent;
          sums[e] = rank == 0 ? sent : sums[e] + sent;
          ++e;
        }
      });
    }
    output_.clear();
    for (std::size_t e = 0; e < sums.size(); ++e) kept_sums_[e] += sums[e];
    for_blocks([&](std::size_t begin, std::size_t end) {
      for (const float sent : sent_sums(number, begin, end)) {
        kept_sums_[output_.size()] -= sent;
        output_.push_back(sent / static_cast<float>(ranks_));
      }
    });
  }

 private:
  PlainCoder coder() const { return plain_methods().at(options_.method->name).code; }

  std::vector<float> sent_sums(std::size_t number, std::size_t begin, std::size_t end) const {
    std::vector<float> sums = part(kept_sums_, begin, end);
    if (options_.rule == QuotaRule::kQuota) {
      return coder()(sums, Dither::of(number, owner(begin), true, begin),
                     options_.threshold * static_cast<float>(ranks_))
          .sent;
    }
    float largest = 0;
    for (const float sum : sums) largest = std::max(largest, std::fabs(sum));
    round_to_wire(options_.wire, fitting_exponent(options_.wire, largest), sums, sums);
    return sums;
  }

  static std::vector<float> part(const std::vector<float>& values, std::size_t begin,
                                 std::size_t end) {
    return {values.begin() + static_cast<std::ptrdiff_t>(begin),
            values.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  static void add(std::vector<float>& sums, const Tensors& values) {
    std::size_t e = 0;
    for (const auto& tensor : values) {
      for (const float value : tensor) sums[e++] += value;
    }
  }
  /// Calls visit(begin, end) for all blocks. A block ends at the end of a tensor or of an owner's
  /// block, and after 256 elements.
  template <typename Visit>
  void for_blocks(const Visit& visit) const {
    std::size_t begin = 0;
    for (std::size_t e = 1; e <= tensor_of_.size(); ++e) {
      if (e < tensor_of_.size() && tensor_of_[e] == tensor_of_[begin] &&
          e / ownership_.block() == begin / ownership_.block() && e - begin < 256) {
        continue;
      }
      visit(begin, e);
      begin = e;
    }
  }

  const SparseOptions options_;
  const int ranks_;
  const BlockOwnership ownership_;
  std::vector<std::size_t> tensor_of_;  // index of the tensor, by element
  std::vector<std::vector<float>> kept_;
  std::vector<float> kept_sums_, output_;
  std::vector<std::vector<std::uint8_t>> codes_;
};

}  // namespace kolo::test
