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

/// Where ranks 1 to size - 1 join rank 0, which listens.
///
/// The port is open to the network and the job's id no secret, so silent or half-open connections,
/// bytes that are no hello, other jobs, and ranks of another world size or version do not end the
/// start-up. They are refused, with the reason where they can read it, and with a line in the log.
/// There is a limit for silent connections, above which the oldest is dropped.
///
/// Two processes that say they are the same rank do end it, for as long as the lobby is there: most
/// likely the ranks of two jobs meet at one port, and which of the two is of this job nobody can
/// tell.
///
/// Threads: one at a time.
class TcpLobby {
 public:
  TcpLobby(FileDescriptor listener, const TcpOptions& options);

  /// Waits until all have joined, and welcomes them.
  /// Errors: KoloError(kTimeout) naming the ranks that did not join within `options.timeout`;
  ///         KoloError(kConfig) likewise if some of them came with another world size or version,
  ///         which they were told at once; those of `step`.
  void await_members();

  /// Moves all connections on, or waits until `until` for something to do, and answers whoever
  /// comes.
  /// Errors: KoloError(kConfig) if two processes are one rank; KoloError(kResources) if the ranks
  ///         alone need more descriptors than rank 0 may open.
  void step(TimePoint until);

  /// Those who have joined, by rank.
  std::map<int, TcpConnection>& members() { return members_; }
  std::vector<TcpConnection*> open_members();

 private:
  /// A connection that has not said hello yet.
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
  std::size_t others_;               // ranks to wait for
  std::vector<Stranger> strangers_;  // the oldest first
  std::map<int, TcpConnection> members_;
  std::map<int, std::string> contradictions_;  // by rank that has not joined
  int warnings_ = 0;
};

}  // namespace kolo
