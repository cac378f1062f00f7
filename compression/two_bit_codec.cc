#include <algorithm>
#include <memory>

#include "compression/quantised_codec.h"

namespace kolo {
namespace {

/// Encodes values from `threshold` up as threshold, values from -threshold down as -threshold, and
/// others as 0. A byte has four codes, the first in the highest bits: 3 for threshold, 2 for
/// -threshold, 0 for 0. Source: the 2-bit compression of MXNet's key-value store.
class TwoBit final : public Quantiser {
 public:
  explicit TwoBit(float threshold) : threshold_(threshold) {}

  std::size_t bytes(std::size_t count) const override { return (count + 3) / 4; }

  void encode(std::span<const float> values, const Dither&,
              std::span<std::byte> codes) const override {
    for (std::size_t begin = 0; begin < values.size(); begin += 4) {
      unsigned four = 0;
      for (std::size_t i = begin; i < std::min(begin + 4, values.size()); ++i) {
        const unsigned code = values[i] >= threshold_ ? 3U : values[i] <= -threshold_ ? 2U : 0U;
        four |= code << shift(i);
      }
      codes[begin / 4] = static_cast<std::byte>(four);
    }
  }

  void decode(std::span<const std::byte> codes, std::span<float> values) const override {
    const float meanings[] = {0.0f, 0.0f, -threshold_, threshold_};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = meanings[std::to_integer<unsigned>(codes[i / 4]) >> shift(i) & 3U];
    }
  }

 private:
  static unsigned shift(std::size_t i) { return 6 - 2 * static_cast<unsigned>(i % 4); }

  float threshold_;
};

}  // namespace

constinit const CompressionMethod methods::two_bit =
    quantised<TwoBit>({.name = "2bit", .title = "2-bit", .takes_threshold = true});

}  // namespace kolo
