#pragma once

#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/tcp_connection.h"
#include "comm/rendezvous/tcp_options.h"

namespace kolo {

/// Any rank but 0 of a TCP rendezvous.
///
/// Threads: one. Errors: those of rank 0, which names the ranks they are about; KoloError(kTimeout
///          or kPeerLost) about rank 0 itself. A failed rendezvous fails again on every later call.
class TcpClient final : public Rendezvous {
 public:
  /// Connects to rank 0, again and again if need be, and blocks until all ranks have joined.
  explicit TcpClient(const TcpOptions& options);

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::vector<std::string> all_gather(const std::string& mine) override;

 private:
  TcpOptions options_;
  TcpConnection connection_;
};

}  // namespace kolo
