#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/tcp_lobby.h"
#include "comm/rendezvous/tcp_options.h"

namespace kolo {

/// Rank 0 of a TCP rendezvous: collects what the others give and sends all of it to each.
///
/// Threads: one. Errors: the first failure is told to all members and thrown by every later call.
/// Cost:    2(n-1) messages and n(n-1) contributions sent per `all_gather`, all from this rank.
class TcpServer final : public Rendezvous {
 public:
  /// Blocks until all ranks have joined; the errors of `TcpLobby` go to all that have joined.
  TcpServer(FileDescriptor listener, const TcpOptions& options);

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
  std::optional<Error> failure_;
};

}  // namespace kolo
