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

/// The listening side of the TCP rendezvous, on rank 0: ranks 1 to size - 1 join it.
///
/// The port is open to the network and the job's id is not secret. So silent or half-open
/// connections, bytes that are no hello, other jobs, and ranks of another world size or version do
/// not end the start-up. They are refused, with a reason where the peer can read it, and with a
/// line in the log. The number of silent connections is limited: beyond it the oldest is dropped.
///
/// Two processes that claim the same rank end the start-up: most likely the ranks of two jobs meet
/// at one port, and nothing tells which process belongs to this job.
///
/// Threads: one at a time.
class TcpLobby {
 public:
  TcpLobby(FileDescriptor listener, const TcpOptions& options);

  /// Waits until all ranks have joined, and welcomes them.
  /// Errors: KoloError(kTimeout) naming the ranks that did not join within `options.timeout`;
  ///         KoloError(kConfig) likewise if some of them came with another world size or version,
  ///         which they are told at once; those of `step`.
  void await_members();

  /// Makes progress on all connections, waiting until `until` at most, and answers new ones.
  /// Errors: KoloError(kConfig) if two processes are one rank; KoloError(kResources) if the ranks
  ///         alone need more descriptors than rank 0 may open.
  void step(TimePoint until);

  /// The ranks that have joined.
  std::map<int, TcpConnection>& members() { return members_; }
  std::vector<TcpConnection*> open_members();

 private:
  /// A connection that has not sent its hello yet.
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
  std::vector<Stranger> strangers_;  // oldest first
  std::map<int, TcpConnection> members_;
  std::map<int, std::string> contradictions_;  // by rank that has not joined: why it was refused
  int warnings_ = 0;
};

}  // namespace kolo
