#include "compression/feedback_state.h"

#include <cstdint>
#include <cstring>

#include "comm/base/check.h"

namespace kolo {
namespace {

constexpr std::uint64_t kMagic = 0x3156'4544'4545'464bULL;  // "KFEEDEV1"

[[noreturn]] void fail(const std::string& what) {
  throw KoloError({.code = ErrorCode::kData, .what = "state of error feedback: " + what});
}

class Writer {
 public:
  void number(std::uint64_t value) { raw(&value, sizeof(value)); }
  void raw(const void* data, std::size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + bytes);
  }
  void floats(const std::vector<float>& values) {
    number(values.size());
    if (!values.empty()) raw(values.data(), values.size() * sizeof(float));
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, raw(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string text() {
    const auto bytes = raw(number());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::vector<float> floats() {
    const std::uint64_t count = number();
    if (count > left_.size() / sizeof(float)) fail("truncated");
    const auto bytes = raw(count * sizeof(float));
    std::vector<float> values(count);
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  bool done() const { return left_.empty(); }

 private:
  std::span<const std::byte> raw(std::uint64_t bytes) {
    if (bytes > left_.size()) fail("truncated");
    const auto part = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return part;
  }
  std::span<const std::byte> left_;
};

void add(std::vector<float>& sums, const std::vector<float>& values) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

void scale(std::vector<float>& values, double factor) {
  for (float& value : values) value = static_cast<float>(value * factor);
}

}  // namespace

std::vector<std::byte> to_bytes(const FeedbackState& state) {
  Writer writer;
  writer.number(kMagic);
  writer.number(state.tensors.size());
  for (const FeedbackState::Tensor& tensor : state.tensors) {
    writer.number(tensor.name.size());
    writer.raw(tensor.name.data(), tensor.name.size());
    writer.floats(tensor.residual);
    writer.floats(tensor.velocity);
  }
  return writer.take();
}

FeedbackState feedback_state_from(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  if (reader.number() != kMagic) fail("not such a state");
  FeedbackState state;
  for (std::uint64_t left = reader.number(); left > 0; --left) {
    FeedbackState::Tensor tensor;
    tensor.name = reader.text();
    tensor.residual = reader.floats();
    tensor.velocity = reader.floats();
    state.tensors.push_back(std::move(tensor));
  }
  if (!reader.done()) fail("longer than it says");
  return state;
}

FeedbackState remap(std::span<const FeedbackState> old_ranks, int new_size, int new_rank) {
  check(!old_ranks.empty(), "a state needs at least one old rank");
  check(new_size > 0 && new_rank >= 0 && new_rank < new_size, "no such rank");
  FeedbackState result = old_ranks[0];
  for (FeedbackState::Tensor& tensor : result.tensors) {
    tensor.residual.assign(tensor.residual.size(), 0.0f);
    tensor.velocity.assign(tensor.velocity.size(), 0.0f);
  }
  for (auto p = static_cast<std::size_t>(new_rank); p < old_ranks.size();
       p += static_cast<std::size_t>(new_size)) {
    const auto& tensors = old_ranks[p].tensors;
    if (tensors.size() != result.tensors.size()) fail("ranks have different tensors");
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      FeedbackState::Tensor& sum = result.tensors[t];
      if (tensors[t].name != sum.name || tensors[t].residual.size() != sum.residual.size() ||
          tensors[t].velocity.size() != sum.velocity.size()) {
        fail("ranks disagree about tensor '" + sum.name + "'");
      }
      add(sum.residual, tensors[t].residual);
      add(sum.velocity, tensors[t].velocity);
    }
  }
  const double factor = static_cast<double>(new_size) / static_cast<double>(old_ranks.size());
  for (FeedbackState::Tensor& tensor : result.tensors) {
    scale(tensor.residual, factor);
    scale(tensor.velocity, factor);
  }
  return result;
}

}  // namespace kolo
