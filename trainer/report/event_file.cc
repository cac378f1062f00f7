#include "trainer/report/event_file.h"

#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>
#include <isa-l/crc.h>

#include "comm/base/output_file.h"

namespace kolo::trainer {
namespace {

static_assert(std::endian::native == std::endian::little);  // as the files are

template <typename T>
void append_plain(std::string& bytes, T value) {
  char plain[sizeof value];
  std::memcpy(plain, &value, sizeof value);
  bytes.append(plain, sizeof value);
}

// Fields of a protocol buffer: a key of number and wire type, then the value.
enum class WireType : std::uint8_t { kVarint = 0, k64Bit = 1, kBytes = 2, k32Bit = 5 };

void append_varint(std::string& message, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) message += static_cast<char>(value | 0x80);
  message += static_cast<char>(value);
}

void append_key(std::string& message, unsigned field, WireType type) {
  append_varint(message, field << 3 | static_cast<unsigned>(type));
}

void append_number(std::string& message, unsigned field, std::uint64_t value) {
  append_key(message, field, WireType::kVarint);
  append_varint(message, value);
}

void append_bytes(std::string& message, unsigned field, std::string_view bytes) {
  append_key(message, field, WireType::kBytes);
  append_varint(message, bytes.size());
  message += bytes;
}

std::string event_at(std::size_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  append_key(event, 1, WireType::k64Bit);  // Event.wall_time
  append_plain(event, now.count());
  append_number(event, 2, step);  // Event.step
  return event;
}

std::uint32_t masked_crc(std::string_view bytes) {
  auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));  // it only reads
  const std::uint32_t crc = ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~0u);
  return std::rotr(crc, 15) + 0xa282ead8u;
}

std::filesystem::path new_path(const std::filesystem::path& folder) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return folder / fmt::format("events.out.tfevents.{:010}.{}.{}", seconds.count(), host,
                              static_cast<int>(::getpid()));
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::size_t first_step)
    : path_(new_path(folder)) {
  std::string version = event_at(0);
  append_bytes(version, 3, "brain.Event:2");  // Event.file_version
  append(version);

  std::string start = event_at(first_step);
  std::string session;
  append_number(session, 1, 1);     // SessionLog.status: START
  append_bytes(start, 7, session);  // Event.session_log
  append(start);
}

void EventFile::add(std::size_t step, std::string_view name, double value) {
  std::string number;
  append_bytes(number, 1, name);            // Summary.Value.tag
  append_key(number, 2, WireType::k32Bit);  // Summary.Value.simple_value
  append_plain(number, static_cast<float>(value));
  std::string summary;
  append_bytes(summary, 1, number);  // Summary.value
  std::string event = event_at(step);
  append_bytes(event, 5, summary);  // Event.summary
  append(event);
}

void EventFile::write() {
  std::error_code ignored;  // writing the file says it
  std::filesystem::create_directories(path_.parent_path(), ignored);
  append_file(path_, pending_);
  pending_.clear();
}

void EventFile::append(std::string_view event) {
  std::string length;
  append_plain(length, static_cast<std::uint64_t>(event.size()));
  pending_ += length;
  append_plain(pending_, masked_crc(length));
  pending_ += event;
  append_plain(pending_, masked_crc(event));
}

}  // namespace kolo::trainer
