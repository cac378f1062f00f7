#include "comm/coordinator/frame.h"

#include <concepts>

#include <xxhash.h>

#include "comm/base/check.h"

namespace kolo {
namespace {

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& bytes) : bytes_(bytes) {}

  template <std::unsigned_integral Number>
  void number(Number value) {
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xFF));
    }
  }
  void rank(int value) { number(static_cast<std::uint32_t>(value)); }
  void text(const std::string& value) {
    number(narrow<std::uint32_t>(value.size()));
    for (char c : value) bytes_.push_back(static_cast<std::byte>(c));
  }
  void topic(const Topic& value) {
    number(value.key);
    number(value.round);
  }

 private:
  std::vector<std::byte>& bytes_;
};

/// Reads what `Writer` wrote; after the first read beyond the end `ok()` is false and reads yield
/// 0.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }

  template <std::unsigned_integral Number>
  Number number() {
    if (!take(sizeof(Number))) return 0;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      value |= static_cast<std::uint64_t>(taken_[i]) << (8 * i);
    }
    return static_cast<Number>(value);
  }
  int rank() { return static_cast<int>(number<std::uint32_t>()); }
  std::string text() {
    if (!take(number<std::uint32_t>())) return {};
    return {reinterpret_cast<const char*>(taken_.data()), taken_.size()};
  }
  Topic topic() {
    Topic value;
    value.key = number<std::uint64_t>();
    value.round = number<std::uint64_t>();
    return value;
  }
  /// Number of list elements of at least `least_bytes` each; fails if they cannot be there.
  std::size_t list(std::size_t least_bytes) {
    const std::size_t count = number<std::uint32_t>();
    if (count > bytes_.size() / least_bytes) ok_ = false;
    return ok_ ? count : 0;
  }

 private:
  bool take(std::size_t count) {
    ok_ = ok_ && count <= bytes_.size();
    if (!ok_) return false;
    taken_ = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return true;
  }

  std::span<const std::byte> bytes_, taken_;
  bool ok_ = true;
};

constexpr std::size_t kTopicBytes = 16;
constexpr std::size_t kLeastPendingBytes = kTopicBytes + 13;
constexpr unsigned kBlockingBit = 1;
constexpr unsigned kPastBit = 2;

void write_error(Writer& writer, const Error& error) {
  writer.number(static_cast<std::uint8_t>(error.code));
  writer.rank(error.rank);
  writer.rank(error.peer);
  writer.text(error.verb);
  writer.text(error.bucket);
  writer.text(error.what);
}

std::optional<Error> read_error(Reader& reader) {
  const auto code = reader.number<std::uint8_t>();
  if (code > static_cast<std::uint8_t>(ErrorCode::kShutdown)) return std::nullopt;
  Error error;
  error.code = static_cast<ErrorCode>(code);
  error.rank = reader.rank();
  error.peer = reader.rank();
  error.verb = reader.text();
  error.bucket = reader.text();
  error.what = reader.text();
  return error;
}

bool has_topics(FrameKind kind) { return kind == FrameKind::kReject || kind == FrameKind::kQuery; }
bool has_error(FrameKind kind) {
  return kind == FrameKind::kReject || kind == FrameKind::kWarn || kind == FrameKind::kFail;
}

}  // namespace

std::uint64_t name_key(std::string_view name) { return XXH3_64bits(name.data(), name.size()) >> 1; }

void encode(const Frame& frame, std::vector<std::byte>& bytes) {
  bytes.clear();
  Writer writer(bytes);
  writer.number(static_cast<std::uint8_t>(frame.kind));
  writer.topic(frame.topic);
  writer.number(frame.least);
  writer.number(frame.greatest);
  if (has_topics(frame.kind)) {
    writer.number(narrow<std::uint32_t>(frame.topics.size()));
    for (const Topic& topic : frame.topics) writer.topic(topic);
  }
  if (frame.kind == FrameKind::kReport) {
    writer.number(static_cast<std::uint8_t>(frame.all_wait ? 1 : 0));
    writer.number(narrow<std::uint32_t>(frame.pending.size()));
    for (const PendingTopic& pending : frame.pending) {
      writer.topic(pending.topic);
      writer.number(static_cast<std::uint8_t>((pending.blocking ? kBlockingBit : 0) |
                                              (pending.past ? kPastBit : 0)));
      writer.number(pending.name);
      writer.text(pending.text);
    }
  }
  if (has_error(frame.kind)) write_error(writer, frame.error);
}

std::optional<Frame> decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Frame frame;
  const auto kind = reader.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(FrameKind::kFail)) return std::nullopt;
  frame.kind = static_cast<FrameKind>(kind);
  frame.topic = reader.topic();
  frame.least = reader.number<std::uint64_t>();
  frame.greatest = reader.number<std::uint64_t>();
  if (has_topics(frame.kind)) {
    frame.topics.resize(reader.list(kTopicBytes));
    for (Topic& topic : frame.topics) topic = reader.topic();
  }
  if (frame.kind == FrameKind::kReport) {
    frame.all_wait = reader.number<std::uint8_t>() != 0;
    frame.pending.resize(reader.list(kLeastPendingBytes));
    for (PendingTopic& pending : frame.pending) {
      pending.topic = reader.topic();
      const auto bits = reader.number<std::uint8_t>();
      pending.blocking = (bits & kBlockingBit) != 0;
      pending.past = (bits & kPastBit) != 0;
      pending.name = reader.number<std::uint64_t>();
      pending.text = reader.text();
    }
  }
  if (has_error(frame.kind)) {
    auto error = read_error(reader);
    if (!error) return std::nullopt;
    frame.error = std::move(*error);
  }
  if (!reader.ok() || !reader.at_end()) return std::nullopt;
  return frame;
}

}  // namespace kolo
