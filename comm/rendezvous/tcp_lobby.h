#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"
#include "comm/rendezvous/tcp_connection.h"
#include "comm/rendezvous/tcp_rendezvous.h"

namespace kolo {

/// The listening side of the TCP rendezvous, on rank 0, which ranks 1 to size - 1 join.
///
/// Any machine of the network can reach the port, and the job's id is not secret. Therefore silent
/// or half-open connections, other protocols, other jobs, and ranks with another world size or
/// version do not end the start-up. They are refused with a line in the log and an error that the
/// peer can read. The number of silent connections is limited: beyond it the oldest one is dropped.
///
/// Two processes that claim the same rank end the start-up while ranks are missing: most likely two
/// jobs use the same port, and the lobby cannot tell which process belongs to this job. Once all
/// ranks have joined, the second process is only refused.
///
/// Threads: one at a time.
class TcpLobby {
 public:
  TcpLobby(FileDescriptor listener, const TcpOptions& options);

  /// Waits until all ranks have joined, and sends them a welcome.
  /// Errors: KoloError(kTimeout) that names the ranks that did not join within `options.timeout`;
  /// KoloError(kConfig) instead if some of these connected with another world size or version,
  /// which is refused at once; errors of `step`.
  void await_members();

  /// Moves data on all connections and answers new ones; waits until `until` at most.
  /// Errors: KoloError(kConfig) if two processes claim one rank while ranks are missing;
  /// KoloError(kResources) if the connections of the ranks alone exceed rank 0's limit of open
  /// files.
  void step(TimePoint until);

  /// The connections of the ranks that have joined, by rank.
  std::map<int, TcpConnection>& members() { return members_; }
  std::vector<TcpConnection*> open_members();

 private:
  /// A connection that has not sent a complete hello.
  struct Stranger {
    TcpConnection connection;
    TimePoint drop_at;
  };

  bool is_complete() const { return members_.size() == others_; }
  std::vector<int> missing() const;
  void let_in();
  void drop_oldest_stranger(std::string_view why);
  void drop_closed_members();
  void hear_strangers();
  void introduce(TcpConnection connection, const Hello& hello);
  void contradict(TcpConnection& connection, int rank, const std::string& contradiction);
  void drop(const TcpConnection& connection, std::string_view why);
  void reject(TcpConnection& connection, const std::string& why);

  TcpOptions options_;
  FileDescriptor listener_;
  std::uint64_t job_hash_;
  std::size_t others_;               // number of ranks to wait for
  std::vector<Stranger> strangers_;  // in the order of their connection
  std::map<int, TcpConnection> members_;
  std::map<int, std::string> contradictions_;  // by refused rank: the reason
  int warnings_ = 0;
};

}  // namespace kolo
