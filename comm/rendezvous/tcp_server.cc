#include "comm/rendezvous/tcp_server.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"
#include "comm/rendezvous/tcp_lobby.h"

namespace kolo {

TcpServer::TcpServer(FileDescriptor listener, const TcpOptions& options)
    : options_(options), members_(await_members(std::move(listener), options)) {}

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
  for (;;) {
    for (auto& [rank, connection] : members_) {
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
              .verb = {},
              .bucket = {},
              .what = fmt::format("lost during the rendezvous: {}", connection.why_closed())});
      }
    }
    if (given.size() == members_.size() + 1) break;
    if (SteadyClock{}.now() >= deadline) {
      std::vector<int> missing;
      for (const auto& [rank, connection] : members_) {
        if (!given.contains(rank)) missing.push_back(rank);
      }
      fail({.code = ErrorCode::kTimeout,
            .rank = 0,
            .verb = {},
            .bucket = {},
            .what = fmt::format("rendezvous: nothing from rank {} within {} ms",
                                fmt::join(missing, ", "), options_.timeout.count())});
    }
    progress_until(deadline, -1, open_members());
  }
  std::vector<std::string> contributions;
  for (auto& [rank, contribution] : given) contributions.push_back(std::move(contribution));
  return contributions;
}

void TcpServer::distribute(const std::vector<std::string>& contributions, TimePoint deadline) {
  const std::string frame = encode_frame(TcpFrameKind::kData, encode_gathered(contributions));
  for (auto& [rank, connection] : members_) connection.send(frame);
  for (;;) {
    std::vector<int> slow;
    for (const auto& [rank, connection] : members_) {
      if (connection.has_unsent()) slow.push_back(rank);
    }
    if (slow.empty()) return;
    if (SteadyClock{}.now() >= deadline) {
      fail({.code = ErrorCode::kTimeout,
            .rank = 0,
            .verb = {},
            .bucket = {},
            .what = fmt::format("rendezvous: rank {} did not take the result within {} ms",
                                fmt::join(slow, ", "), options_.timeout.count())});
    }
    progress_until(deadline, -1, open_members());
  }
}

std::vector<TcpConnection*> TcpServer::open_members() {
  std::vector<TcpConnection*> open;
  for (auto& [rank, connection] : members_) {
    if (connection.is_open()) open.push_back(&connection);
  }
  return open;
}

void TcpServer::fail(Error error) {
  failure_ = std::move(error);
  close_with_error(*failure_, open_members());
  throw KoloError(*failure_);
}

}  // namespace kolo
