#include "comm/rendezvous/store_rendezvous.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/byte_codec.h"
#include "comm/base/check.h"
#include "comm/base/clock.h"
#include "comm/base/log.h"

namespace kolo {
namespace {

using std::chrono::milliseconds;

/// A value of the store: version u32 | world size u32 | kind u8, then either a number of
/// contributions and the contributions, or an error.
constexpr std::uint32_t kValueVersion = 1;
enum class ValueKind : std::uint8_t { kContributions, kFailure };
constexpr ValueKind kValueKinds[] = {ValueKind::kContributions, ValueKind::kFailure};

[[noreturn]] void fail_exchange(ErrorCode code, const std::string& what) {
  throw KoloError({.code = code, .what = "rendezvous: " + what});
}

std::string encode_value(int world_size, ValueKind kind, const auto& write_content) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  writer.number(kValueVersion);
  writer.number(static_cast<std::uint32_t>(world_size));
  writer.number(static_cast<std::uint8_t>(kind));
  write_content(writer);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string encode_contributions(int world_size, std::span<const std::string> contributions) {
  return encode_value(world_size, ValueKind::kContributions, [&](ByteWriter& writer) {
    writer.number(narrow<std::uint32_t>(contributions.size()));
    for (const std::string& contribution : contributions) writer.text(contribution);
  });
}

std::vector<std::string> decode_contributions(ByteReader& reader) {
  constexpr std::size_t kLeastBytes = sizeof(std::uint32_t);
  std::vector<std::string> contributions(reader.list(kLeastBytes));
  for (std::string& contribution : contributions) contribution = reader.text();
  return contributions;
}

/// After its time, rank 0 still asks for the other ranks, to tell which are missing: long enough
/// for the answer of a distant store, but not longer than `kLateWaits` in all.
constexpr milliseconds kLeastWait{50};
constexpr milliseconds kLateWaits{1'000};

/// Returns the time that other ranks wait for rank 0. Rank 0 may start later than the others, and
/// then still has to report which ranks are missing.
milliseconds patience(milliseconds timeout) {
  constexpr milliseconds kLeastExtra = 2 * kLateWaits;
  return timeout + std::max(timeout / 4, kLeastExtra);
}

}  // namespace

StoreRendezvous::StoreRendezvous(std::unique_ptr<KeyValueStore> store, Config config)
    : store_(std::move(store)),
      config_(std::move(config)),
      exceptions_(std::uncaught_exceptions()) {
  check(store_ != nullptr, "there is no store");
  check(config_.size >= 1, "world size is out of range");
  check(config_.rank >= 0 && config_.rank < config_.size, "rank is out of range");
}

StoreRendezvous::~StoreRendezvous() {
  const bool is_unwinding = std::uncaught_exceptions() > exceptions_;
  if (!is_unwinding || failure_) return;
  publish({.code = ErrorCode::kPeerLost,
           .peer = config_.rank,
           .what = "it failed during start-up; its own error says why"});
}

std::vector<std::string> StoreRendezvous::all_gather(const std::string& mine) {
  if (failure_) throw KoloError(*failure_);
  try {
    Contributions all = config_.rank == 0 ? collect(mine) : contribute(mine);
    ++round_;
    return all;
  } catch (const KoloError& error) {
    failure_ = error.error();
    if (config_.rank == 0) publish(*failure_);
    throw;
  }
}

std::vector<std::string> StoreRendezvous::collect(const std::string& mine) {
  const TimePoint deadline = later(SteadyClock{}.now(), saturated(config_.timeout));
  Contributions all = {mine};
  std::vector<int> missing;
  for (int rank = 1; rank < config_.size; ++rank) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - SteadyClock{}.now());
    if (left < -kLateWaits && !missing.empty()) {
      fail_exchange(ErrorCode::kTimeout,
                    fmt::format("nothing from rank {} within {} ms; rank {} and later ones were "
                                "not asked for",
                                fmt::join(missing, ", "), config_.timeout.count(), rank));
    }
    if (auto theirs = read(rank, 1, std::max(left, kLeastWait))) {
      all.push_back(std::move(theirs->front()));
    } else {
      missing.push_back(rank);
    }
  }
  if (!missing.empty()) {
    fail_exchange(ErrorCode::kTimeout,
                  fmt::format("nothing from rank {} within {} ms", fmt::join(missing, ", "),
                              config_.timeout.count()));
  }
  if (config_.size > 1) store_->set(key(0), encode_contributions(config_.size, all));
  return all;
}

std::vector<std::string> StoreRendezvous::contribute(const std::string& mine) {
  store_->set(key(config_.rank), encode_contributions(config_.size, std::span(&mine, 1)));
  const milliseconds timeout = patience(config_.timeout);
  auto all = read(0, static_cast<std::size_t>(config_.size), timeout);
  if (!all) {
    fail_exchange(ErrorCode::kTimeout,
                  fmt::format("nothing from rank 0 within {} ms", timeout.count()));
  }
  return *std::move(all);
}

std::string StoreRendezvous::key(int rank) const {
  return fmt::format("{}/{}/{}", config_.prefix, round_, rank == 0 ? "all" : std::to_string(rank));
}

std::optional<std::vector<std::string>> StoreRendezvous::read(int rank, std::size_t count,
                                                              milliseconds timeout) {
  std::string value;
  try {
    value = store_->get(key(rank), timeout);
  } catch (const KoloError& error) {
    if (error.error().code == ErrorCode::kTimeout) return std::nullopt;
    throw;
  }
  ByteReader reader(std::as_bytes(std::span(value)));
  const auto version = reader.number<std::uint32_t>();
  const auto world_size = reader.number<std::uint32_t>();
  if (reader.ok() && version != kValueVersion) {
    fail_exchange(ErrorCode::kConfig,
                  fmt::format("rank {} speaks version {} of the exchange, rank {} version {}", rank,
                              version, config_.rank, kValueVersion));
  }
  if (reader.ok() && world_size != static_cast<std::uint32_t>(config_.size)) {
    fail_exchange(ErrorCode::kConfig,
                  fmt::format("rank {} was started with world size {}, rank {} with {}", rank,
                              world_size, config_.rank, config_.size));
  }
  if (reader.choice(kValueKinds) == ValueKind::kFailure) {
    const std::optional<Error> failure = read_error(reader);
    if (reader.ok() && reader.at_end() && failure) throw KoloError(*failure);
  } else {
    Contributions contributions = decode_contributions(reader);
    if (reader.ok() && reader.at_end() && contributions.size() == count) return contributions;
  }
  fail_exchange(
      ErrorCode::kIo,
      fmt::format("the {} bytes that the store has under '{}' are not what rank {} stored",
                  value.size(), key(rank), rank));
}

void StoreRendezvous::publish(const Error& error) noexcept {
  if (config_.size == 1) return;
  try {
    store_->set(key(config_.rank),
                encode_value(config_.size, ValueKind::kFailure,
                             [&](ByteWriter& writer) { write_error(writer, error); }));
  } catch (const std::exception& unheard) {
    log::warn(fmt::format("rendezvous: the other ranks do not learn why: {}", unheard.what()));
  }
}

}  // namespace kolo
