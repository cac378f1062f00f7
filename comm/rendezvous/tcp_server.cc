#include "comm/rendezvous/tcp_server.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"

namespace kolo {

TcpServer::TcpServer(FileDescriptor listener, const TcpOptions& options)
    : options_(options), lobby_(std::move(listener), options) {
  try {
    lobby_.await_members();
  } catch (const KoloError& error) {
    fail(error.error());
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
  step(SteadyClock{}.now());  // Sees who has come since the last exchange.
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
              .verb = {},
              .bucket = {},
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
            .verb = {},
            .bucket = {},
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
            .verb = {},
            .bucket = {},
            .what = fmt::format("rendezvous: rank {} did not take the result within {} ms",
                                fmt::join(slow, ", "), options_.timeout.count())});
    }
    step(deadline);
  }
}

/// Answers those, too, who come when all have joined.
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

}  // namespace kolo
