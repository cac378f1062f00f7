#include "comm/rendezvous/tcp_rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/rendezvous/tcp_lobby.h"
#include "comm/rendezvous/tcp_socket.h"

namespace kolo {
namespace {

// --- Ranks other than 0 -------------------------------------------------------------------------

/// Additional time that other ranks wait for the error of rank 0, which names the missing ranks.
constexpr std::chrono::seconds kGrace{2};

[[noreturn]] void fail(ErrorCode code, const TcpOptions& options, std::string_view what,
                       std::string_view why) {
  throw KoloError(Error{
      .code = code,
      .rank = options.rank,
      .peer = 0,
      .what = fmt::format("rendezvous at {}:{}: {} ({})", options.host, options.port, what, why)});
}

/// Returns the next frame from rank 0; nothing if the connection closes or the deadline passes
/// first. Errors: the KoloError that rank 0 sends instead.
std::optional<TcpConnection::Frame> next_frame(TcpConnection& connection, TimePoint deadline) {
  for (;;) {
    if (auto frame = connection.take_frame()) {
      if (frame->kind != TcpFrameKind::kError) return frame;
      const std::optional<Error> error = decode_error(frame->payload);
      connection.close(error ? error->to_string() : "it sent a malformed error");
      if (error) throw KoloError(*error);
    }
    if (!connection.is_open() || SteadyClock{}.now() >= deadline) return std::nullopt;
    TcpConnection* const only = &connection;
    progress_until(deadline, -1, std::span(&only, 1));
  }
}

TcpConnection join(const TcpOptions& options) {
  constexpr std::chrono::milliseconds kFirstPause{10};
  constexpr std::chrono::milliseconds kLongestPause{500};
  const TimePoint deadline = SteadyClock{}.now() + options.timeout + kGrace;
  const auto size = static_cast<std::size_t>(options.size);
  const std::size_t max_frame_bytes =
      size * (sizeof(std::uint64_t) + options.max_contribution_bytes);
  const std::string hello = encode_hello({.rank = static_cast<std::uint32_t>(options.rank),
                                          .size = static_cast<std::uint32_t>(options.size),
                                          .job_hash = hash_job_id(options.job_id)});
  std::string why;
  std::chrono::milliseconds pause = kFirstPause;
  while (SteadyClock{}.now() < deadline) {
    if (FileDescriptor socket = connect_to(options.host, options.port, deadline, why)) {
      TcpConnection connection(std::move(socket), max_frame_bytes);
      connection.send(hello);
      const auto answer = next_frame(connection, deadline);
      if (answer && answer->kind == TcpFrameKind::kWelcome) return connection;
      connection.close("it said nothing");
      why = connection.why_closed();
    }
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
    pause = std::min(2 * pause, kLongestPause);
  }
  fail(ErrorCode::kTimeout, options,
       fmt::format("rank 0 did not answer within {} ms", options.timeout.count()), why);
}

/// Any rank except rank 0 of a TCP rendezvous.
///
/// Threads: one. Errors: those of rank 0, which name the ranks concerned; KoloError(kTimeout or
/// kPeerLost) if rank 0 itself fails. After a failure every later call fails again.
class TcpClient final : public Rendezvous {
 public:
  /// Connects to rank 0 with retries, and blocks until all ranks have joined.
  explicit TcpClient(const TcpOptions& options);

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::vector<std::string> all_gather(const std::string& mine) override;

 private:
  TcpOptions options_;
  TcpConnection connection_;
};

TcpClient::TcpClient(const TcpOptions& options) : options_(options), connection_(join(options)) {}

std::vector<std::string> TcpClient::all_gather(const std::string& mine) {
  check(mine.size() <= options_.max_contribution_bytes, "contribution to all_gather is too long");
  connection_.send(encode_frame(TcpFrameKind::kData, mine));
  const auto answer = next_frame(connection_, SteadyClock{}.now() + options_.timeout + kGrace);
  if (answer) {
    if (auto gathered = decode_gathered(answer->payload, options_.size)) return *gathered;
    connection_.close("it sent a malformed result");
  }
  if (connection_.is_open()) {
    connection_.close(fmt::format("rank 0 did not answer within {} ms", options_.timeout.count()));
    fail(ErrorCode::kTimeout, options_, "no result", connection_.why_closed());
  }
  fail(ErrorCode::kPeerLost, options_, "lost rank 0", connection_.why_closed());
}

// --- Rank 0 -------------------------------------------------------------------------------------

/// Rank 0 of a TCP rendezvous: collects the contributions and sends all of them to each rank.
///
/// Threads: one. Errors: the first failure is sent to all members and thrown by every later call.
/// Cost:    2(n-1) messages and n(n-1) contributions sent per `all_gather`, all from this rank.
class TcpServer final : public Rendezvous {
 public:
  /// Blocks until all ranks have joined. Sends errors of `TcpLobby` to the ranks that have joined.
  TcpServer(FileDescriptor listener, const TcpOptions& options);
  /// If an exception is being thrown, sends an error to the other ranks.
  ~TcpServer() override;

  int rank() const override { return 0; }
  int size() const override { return options_.size; }
  std::vector<std::string> all_gather(const std::string& mine) override;

 private:
  std::vector<std::string> collect(const std::string& mine, TimePoint deadline);
  void distribute(const std::vector<std::string>& contributions, TimePoint deadline);
  void step(TimePoint until);
  [[noreturn]] void fail(Error error);

  TcpOptions options_;
  TcpLobby lobby_;
  const int exceptions_;
  std::optional<Error> failure_;
};

TcpServer::TcpServer(FileDescriptor listener, const TcpOptions& options)
    : options_(options),
      lobby_(std::move(listener), options),
      exceptions_(std::uncaught_exceptions()) {
  try {
    lobby_.await_members();
  } catch (const KoloError& error) {
    fail(error.error());
  }
}

TcpServer::~TcpServer() {
  const bool is_unwinding = std::uncaught_exceptions() > exceptions_;
  if (!is_unwinding || failure_) return;
  try {
    close_with_error({.code = ErrorCode::kPeerLost,
                      .rank = 0,
                      .peer = 0,
                      .what = "it failed during start-up; its own error says why"},
                     lobby_.open_members());
  } catch (const std::exception& unheard) {
    log::warn(fmt::format("rendezvous: the other ranks do not learn why: {}", unheard.what()));
  }
}

std::vector<std::string> TcpServer::all_gather(const std::string& mine) {
  if (failure_) throw KoloError(*failure_);
  check(mine.size() <= options_.max_contribution_bytes, "contribution to all_gather is too long");
  const TimePoint deadline = SteadyClock{}.now() + options_.timeout;
  std::vector<std::string> contributions = collect(mine, deadline);
  distribute(contributions, deadline);
  return contributions;
}

std::vector<std::string> TcpServer::collect(const std::string& mine, TimePoint deadline) {
  std::map<int, std::string> given{{0, mine}};
  step(SteadyClock{}.now());  // accepts connections made since the last exchange
  for (;;) {
    for (auto& [rank, connection] : lobby_.members()) {
      if (!given.contains(rank)) {
        if (auto frame = connection.take_frame()) {
          if (frame->kind != TcpFrameKind::kData)
            connection.close("it sent something else than data");
          given.emplace(rank, std::move(frame->payload));
        }
      }
      if (!connection.is_open()) {
        fail({.code = ErrorCode::kPeerLost,
              .rank = 0,
              .peer = rank,
              .what = fmt::format("lost during the rendezvous: {}", connection.why_closed())});
      }
    }
    if (given.size() == lobby_.members().size() + 1) break;
    if (SteadyClock{}.now() >= deadline) {
      std::vector<int> missing;
      for (const auto& [rank, connection] : lobby_.members()) {
        if (!given.contains(rank)) missing.push_back(rank);
      }
      fail({.code = ErrorCode::kTimeout,
            .rank = 0,
            .what = fmt::format("rendezvous: nothing from rank {} within {} ms",
                                fmt::join(missing, ", "), options_.timeout.count())});
    }
    step(deadline);
  }
  std::vector<std::string> contributions;
  for (auto& [rank, contribution] : given) contributions.push_back(std::move(contribution));
  return contributions;
}

void TcpServer::distribute(const std::vector<std::string>& contributions, TimePoint deadline) {
  const std::string frame = encode_frame(TcpFrameKind::kData, encode_gathered(contributions));
  for (auto& [rank, connection] : lobby_.members()) connection.send(frame);
  for (;;) {
    std::vector<int> slow;
    for (const auto& [rank, connection] : lobby_.members()) {
      if (connection.has_unsent()) slow.push_back(rank);
    }
    if (slow.empty()) return;
    if (SteadyClock{}.now() >= deadline) {
      fail({.code = ErrorCode::kTimeout,
            .rank = 0,
            .what = fmt::format("rendezvous: rank {} did not take the result within {} ms",
                                fmt::join(slow, ", "), options_.timeout.count())});
    }
    step(deadline);
  }
}

/// Moves data and also answers connections that are made after all ranks have joined.
void TcpServer::step(TimePoint until) {
  try {
    lobby_.step(until);
  } catch (const KoloError& error) {
    fail(error.error());
  }
}

void TcpServer::fail(Error error) {
  failure_ = std::move(error);
  failure_->rank = 0;
  close_with_error(*failure_, lobby_.open_members());
  throw KoloError(*failure_);
}

// ------------------------------------------------------------------------------------------------

void check_place(const TcpOptions& options) {
  check(options.size >= 1 && options.size <= kMaxTcpRanks, "world size is out of range");
  check(options.rank >= 0 && options.rank < options.size, "rank is out of range");
}

}  // namespace

std::unique_ptr<Rendezvous> make_tcp_rendezvous(const TcpOptions& options) {
  check_place(options);
  if (options.rank != 0) return std::make_unique<TcpClient>(options);
  return std::make_unique<TcpServer>(listen_on(options.host, options.port), options);
}

std::unique_ptr<Rendezvous> make_tcp_rendezvous(const TcpOptions& options,
                                                FileDescriptor listener) {
  check_place(options);
  check(options.rank == 0, "only rank 0 listens");
  return std::make_unique<TcpServer>(std::move(listener), options);
}

}  // namespace kolo
