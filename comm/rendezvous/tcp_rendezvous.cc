#include "comm/rendezvous/tcp_rendezvous.h"

#include <utility>

#include "comm/base/check.h"
#include "comm/rendezvous/tcp_client.h"
#include "comm/rendezvous/tcp_server.h"
#include "comm/rendezvous/tcp_socket.h"

namespace kolo {
namespace {

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
