#include "comm/rendezvous/tcp_lobby.h"

#include <algorithm>
#include <optional>
#include <set>
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

TimePoint now() { return SteadyClock{}.now(); }

class Lobby {
 public:
  Lobby(FileDescriptor listener, const TcpOptions& options)
      : options_(options),
        listener_(std::move(listener)),
        job_hash_(hash_job_id(options.job_id)),
        expected_(static_cast<std::size_t>(options.size)),
        deadline_(now() + options.timeout) {}

  std::map<int, TcpConnection> await_members() {
    while (heard() < expected_ && now() < deadline_) {
      try {
        step();
      } catch (const KoloError& failure) {
        fail(failure.error().code, failure.error().what);
      }
    }
    if (!mismatches_.empty()) {
      fail(ErrorCode::kConfig, fmt::format("rendezvous: {}", fmt::join(mismatches_, "; ")));
    }
    if (heard() < expected_) {
      fail(ErrorCode::kTimeout,
           fmt::format("rendezvous: rank {} of {} did not join within {} ms",
                       fmt::join(missing(), ", "), options_.size, options_.timeout.count()));
    }
    for (auto& [rank, connection] : members_)
      connection.send(encode_frame(FrameKind::kWelcome, ""));
    return std::move(members_);
  }

 private:
  /// A connection that has not said hello yet.
  struct Stranger {
    TcpConnection connection;
    TimePoint drop_at;
  };

  std::size_t heard() const { return 1 + members_.size() + misfit_ranks_.size(); }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < options_.size; ++rank) {
      if (!members_.contains(rank)) ranks.push_back(rank);
    }
    return ranks;
  }

  void step() {
    std::vector<TcpConnection*> connections = those_who_know_the_job();
    TimePoint until = deadline_;
    for (Stranger& stranger : strangers_) {
      connections.push_back(&stranger.connection);
      until = std::min(until, stranger.drop_at);
    }
    const bool knocking = progress_until(until, listener_.get(), connections);
    drop_closed_members();
    hear_strangers();
    if (knocking) let_in();
  }

  void let_in() {
    while (FileDescriptor socket = accept_from(listener_.get())) {
      strangers_.push_back({TcpConnection(std::move(socket), options_.max_contribution_bytes),
                            now() + options_.hello_timeout});
    }
  }

  void drop_closed_members() {
    std::erase_if(members_, [](const auto& member) {
      const auto& [rank, connection] = member;
      if (connection.is_open()) return false;
      log::warn(fmt::format("rendezvous: rank {} left before all had joined ({})", rank,
                            connection.why_closed()));
      return true;
    });
    std::erase_if(misfits_, [](const TcpConnection& misfit) { return !misfit.is_open(); });
  }

  void hear_strangers() {
    std::vector<Stranger> silent;
    for (Stranger& stranger : std::exchange(strangers_, {})) {
      TcpConnection& connection = stranger.connection;
      const std::string_view arrived = connection.arrived();
      if (!may_be_hello(arrived)) {
        drop(connection, "it is not a rank of Kolo");
      } else if (!connection.is_open()) {  // Even if its hello is complete: it has gone.
        drop(connection, connection.why_closed());
      } else if (arrived.size() >= kHelloBytes) {
        const std::optional<Hello> hello = decode_hello(arrived.substr(0, kHelloBytes));
        connection.take(kHelloBytes);
        introduce(std::move(connection), *hello);
      } else if (now() >= stranger.drop_at) {
        drop(connection, "it did not say who it is");
      } else {
        silent.push_back(std::move(stranger));
      }
    }
    strangers_ = std::move(silent);
  }

  void introduce(TcpConnection connection, const Hello& hello) {
    if (hello.job_hash != job_hash_) {
      return reject(connection, "it belongs to another job");
    }
    if (hello.rank >= hello.size || hello.size > kMaxTcpRanks) {
      return reject(connection, fmt::format("rank {} of {} cannot be", hello.rank, hello.size));
    }
    const int rank = static_cast<int>(hello.rank);
    if (hello.version != kRendezvousVersion) {
      return note_misfit(std::move(connection), rank,
                         fmt::format("rank {} speaks version {} of the protocol, rank 0 version {}",
                                     rank, hello.version, kRendezvousVersion));
    }
    if (hello.size != static_cast<std::uint32_t>(options_.size)) {
      expected_ = std::max<std::size_t>(expected_, hello.size);
      return note_misfit(std::move(connection), rank,
                         fmt::format("rank {} was started with world size {}, rank 0 with {}", rank,
                                     hello.size, options_.size));
    }
    if (rank == 0 || members_.contains(rank)) {
      return reject(connection, fmt::format("rank {} has joined already", rank));
    }
    members_.emplace(rank, std::move(connection));
  }

  /// The job cannot start any more. Who comes soon is told why; then the verdict falls.
  void note_misfit(TcpConnection connection, int rank, std::string mismatch) {
    if (mismatches_.empty()) deadline_ = std::min(deadline_, now() + options_.hello_timeout);
    misfits_.push_back(std::move(connection));
    if (misfit_ranks_.insert(rank).second) mismatches_.push_back(std::move(mismatch));
  }

  static void drop(const TcpConnection& connection, std::string_view why) {
    log::warn(fmt::format("rendezvous: dropped {}: {}", connection.peer_name(), why));
  }

  static void reject(TcpConnection& connection, std::string why) {
    drop(connection, why);
    const Error error = {.code = ErrorCode::kConfig,
                         .rank = 0,
                         .verb = {},
                         .bucket = {},
                         .what = fmt::format("rendezvous: rejected by rank 0: {}", why)};
    connection.send(encode_frame(FrameKind::kError, encode_error(error)));
  }

  std::vector<TcpConnection*> those_who_know_the_job() {
    std::vector<TcpConnection*> connections;
    for (auto& [rank, connection] : members_) connections.push_back(&connection);
    for (TcpConnection& misfit : misfits_) connections.push_back(&misfit);
    return connections;
  }

  [[noreturn]] void fail(ErrorCode code, std::string what) {
    const Error error{.code = code, .rank = 0, .verb = {}, .bucket = {}, .what = std::move(what)};
    close_with_error(error, those_who_know_the_job());
    throw KoloError(error);
  }

  const TcpOptions& options_;
  FileDescriptor listener_;
  std::uint64_t job_hash_;
  std::size_t expected_;  // Ranks to hear of: the largest world size anybody believes in.
  TimePoint deadline_;
  std::vector<Stranger> strangers_;
  std::map<int, TcpConnection> members_;
  std::vector<TcpConnection> misfits_;
  std::set<int> misfit_ranks_;
  std::vector<std::string> mismatches_;
};

}  // namespace

std::map<int, TcpConnection> await_members(FileDescriptor listener, const TcpOptions& options) {
  return Lobby(std::move(listener), options).await_members();
}

}  // namespace kolo
