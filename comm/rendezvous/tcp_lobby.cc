#include "comm/rendezvous/tcp_lobby.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/rendezvous/tcp_socket.h"

namespace kolo {
namespace {

/// Limit of silent connections in addition to those of the ranks, each of which is silent until its
/// hello is received.
constexpr std::size_t kMostStrangers = 64;
/// Limit after all ranks have joined, when the job needs descriptors: more hellos can only be
/// duplicates.
constexpr std::size_t kMostLateStrangers = 4;
constexpr int kMostWarnings = 20;

}  // namespace

TcpLobby::TcpLobby(FileDescriptor listener, const TcpOptions& options)
    : options_(options),
      listener_(std::move(listener)),
      job_hash_(hash_job_id(options.job_id)),
      others_(static_cast<std::size_t>(options.size) - 1) {}

void TcpLobby::await_members() {
  const TimePoint deadline = SteadyClock{}.now() + options_.timeout;
  while (!is_complete() && SteadyClock{}.now() < deadline) step(deadline);
  if (!is_complete()) {
    std::string what =
        fmt::format("rendezvous: rank {} of {} did not join within {} ms",
                    fmt::join(missing(), ", "), options_.size, options_.timeout.count());
    for (const auto& [rank, contradiction] : contradictions_) what += "; " + contradiction;
    throw KoloError({.code = contradictions_.empty() ? ErrorCode::kTimeout : ErrorCode::kConfig,
                     .rank = 0,
                     .what = std::move(what)});
  }
  while (strangers_.size() > kMostLateStrangers) drop_oldest_stranger("all ranks have joined");
  for (auto& [rank, connection] : members_)
    connection.send(encode_frame(TcpFrameKind::kWelcome, ""));
}

std::vector<TcpConnection*> TcpLobby::open_members() {
  std::vector<TcpConnection*> open;
  for (auto& [rank, connection] : members_) {
    if (connection.is_open()) open.push_back(&connection);
  }
  return open;
}

std::vector<int> TcpLobby::missing() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < options_.size; ++rank) {
    if (!members_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

void TcpLobby::step(TimePoint until) {
  std::vector<TcpConnection*> connections = open_members();
  for (Stranger& stranger : strangers_) {
    connections.push_back(&stranger.connection);
    until = std::min(until, stranger.drop_at);
  }
  const bool knocking = progress_until(until, listener_.get(), connections);
  if (!is_complete()) drop_closed_members();
  hear_strangers();
  if (knocking) let_in();
}

void TcpLobby::let_in() {
  const std::size_t most = is_complete() ? kMostLateStrangers : others_ + kMostStrangers;
  for (std::size_t i = 0; i < most; ++i) {
    FileDescriptor socket;
    try {
      socket = accept_from(listener_.get());
      if (!socket) return;
    } catch (const KoloError&) {  // no descriptor is left
      if (strangers_.empty() && is_complete()) return listener_.reset();
      if (strangers_.empty()) throw;
      drop_oldest_stranger("descriptors have run out");
      continue;
    }
    if (strangers_.size() >= most) {
      drop_oldest_stranger("too many others have come and are silent, too");
    }
    strangers_.push_back({TcpConnection(std::move(socket), options_.max_contribution_bytes),
                          SteadyClock{}.now() + options_.hello_timeout});
  }
}

void TcpLobby::drop_oldest_stranger(std::string_view why) {
  drop(strangers_.front().connection, why);
  strangers_.erase(strangers_.begin());
}

void TcpLobby::drop_closed_members() {
  std::erase_if(members_, [](const auto& member) {
    const auto& [rank, connection] = member;
    if (connection.is_open()) return false;
    log::warn(fmt::format("rendezvous: rank {} left before all had joined ({})", rank,
                          connection.why_closed()));
    return true;
  });
}

void TcpLobby::hear_strangers() {
  std::vector<Stranger> silent;
  for (Stranger& stranger : std::exchange(strangers_, {})) {
    TcpConnection& connection = stranger.connection;
    const std::string_view arrived = connection.arrived();
    if (!may_be_hello(arrived)) {
      drop(connection, "it is not a rank of Kolo");
    } else if (!connection.is_open()) {  // dropped, even if its hello is complete
      drop(connection, connection.why_closed());
    } else if (arrived.size() >= kHelloBytes) {
      const std::optional<Hello> hello = decode_hello(arrived.substr(0, kHelloBytes));
      connection.take(kHelloBytes);
      introduce(std::move(connection), *hello);
    } else if (SteadyClock{}.now() >= stranger.drop_at) {
      drop(connection, "it did not say who it is");
    } else {
      silent.push_back(std::move(stranger));
    }
  }
  strangers_ = std::move(silent);
}

void TcpLobby::introduce(TcpConnection connection, const Hello& hello) {
  if (hello.job_hash != job_hash_) {
    return reject(connection, "it belongs to another job");
  }
  if (hello.rank >= hello.size || hello.size > kMaxTcpRanks) {
    return reject(connection, fmt::format("rank {} of {} cannot be", hello.rank, hello.size));
  }
  const int rank = static_cast<int>(hello.rank);
  if (hello.version != kRendezvousVersion) {
    return contradict(connection, rank,
                      fmt::format("rank {} speaks version {} of the protocol, rank 0 version {}",
                                  rank, hello.version, kRendezvousVersion));
  }
  if (hello.size != static_cast<std::uint32_t>(options_.size)) {
    return contradict(connection, rank,
                      fmt::format("rank {} was started with world size {}, rank 0 with {}", rank,
                                  hello.size, options_.size));
  }
  if (const auto member = members_.find(rank); member != members_.end()) {
    const std::string why =
        fmt::format("two processes are rank {}, {} and {}: is another job at port {}?", rank,
                    member->second.peer_name(), connection.peer_name(), options_.port);
    reject(connection, why);
    if (is_complete()) return;
    throw KoloError({.code = ErrorCode::kConfig, .rank = 0, .what = "rendezvous: " + why});
  }
  if (rank == 0) return reject(connection, "rank 0 has joined already");
  members_.emplace(rank, std::move(connection));
  contradictions_.erase(rank);
}

/// Notes why a rank was refused. Any process can send such a hello, so the real rank may still
/// join; otherwise the note is the reason in the error.
void TcpLobby::contradict(TcpConnection& connection, int rank, const std::string& contradiction) {
  reject(connection, contradiction);
  if (rank < options_.size && !members_.contains(rank)) contradictions_[rank] = contradiction;
}

void TcpLobby::drop(const TcpConnection& connection, std::string_view why) {
  if (++warnings_ > kMostWarnings) return;
  log::warn(fmt::format("rendezvous: dropped {}: {}{}", connection.peer_name(), why,
                        warnings_ == kMostWarnings ? "; further ones are not listed" : ""));
}

void TcpLobby::reject(TcpConnection& connection, const std::string& why) {
  drop(connection, why);
  const Error error = {.code = ErrorCode::kConfig,
                       .rank = 0,
                       .what = fmt::format("rendezvous: rejected by rank 0: {}", why)};
  connection.send(encode_frame(TcpFrameKind::kError, encode_error(error)));
}

}  // namespace kolo
