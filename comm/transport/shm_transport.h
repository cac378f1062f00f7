#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/base/mutex.h"
#include "comm/transport/arena.h"
#include "comm/transport/message_matcher.h"
#include "comm/transport/peer_memory.h"
#include "comm/transport/shm_handshake.h"
#include "comm/transport/shm_segment.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Connects the ranks of one node through shared memory. Each rank is a process (or a thread) with
/// a transport of its own. A signal or an arrival is one store to mapped memory. Messages pass
/// through one byte ring per pair and direction; control frames use a separate ring, so that they
/// never wait for data. No object has a name in the file system.
///
/// Polling makes no system call, except that every `kPollsPerCheck` polls without news it checks
/// the sockets of its peers. A parked rank uses no CPU time: doorbell and sockets make `wake_fds`
/// readable. In `sleep` only the doorbell wakes the rank, so it checks the sockets each time
/// `limit` has passed. When a process ends, the system closes its socket. A peer whose socket
/// closes without a goodbye is reported as lost, or with the error that it has posted.
///
/// Construction is collective over the node. Errors: as `meet_node_peers` and `Arena`. UsageError
/// for peers outside the node.
class ShmTransport final : public Transport {
 public:
  using Config = NodeMembership;

  /// `world_size` counts all ranks of the job, including ranks of other nodes.
  ShmTransport(const Config& config, int world_size);
  ~ShmTransport() override;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  void isend(int peer, const Tag& tag, std::span<const std::byte> data, Completion& done) override;
  void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) override;
  void abandon(const Tag& first) override { abandoned_.add(first); }
  /// Cancels receives whose messages have not begun to arrive.
  bool cancel(Completion& done) override {
    return done.state != Completion::State::kPending || matcher_.cancel(done);
  }
  void send_control(int peer, std::span<const std::byte> bytes) override;
  bool receive_control(ControlFrame& frame) override;

  bool is_mapped(int peer) const override;
  std::span<std::byte> memory(int peer) override;
  bool is_open_to_peers() override;
  bool is_in_huge_pages(std::span<const std::byte> memory) override {
    return page_map_.are_huge(memory);
  }
  void read_memory(int peer, std::uint64_t address, std::span<std::byte> to) override;
  void write_memory(int peer, std::uint64_t address, std::span<const std::byte> from) override;
  void commit(std::size_t offset, std::size_t bytes, const Pause& pause) override;
  void signal(int peer, std::uint32_t slot, std::uint64_t value) override;
  std::uint64_t signalled(int peer, std::uint32_t slot) const override;
  std::uint64_t arrive(int owner, std::uint32_t counter) override;
  std::uint64_t counter(int owner, std::uint32_t counter) const override;
  void set_counter(std::uint32_t counter, std::uint64_t value) override;

  bool poll() override;
  void ring(int peer) override;
  void post_error(const Error& error) override;
  void note_stuck(std::string_view verb) override { own_segment().error().note_stuck(verb); }
  std::string stuck_in(int peer) const override;
  bool arm() override { return own_bell().listen() && own_bell().park(Doorbell::Rest::kParked); }
  void disarm() override;
  bool arm_idle() override { return own_bell().park(Doorbell::Rest::kIdle); }
  void unarm() override { own_bell().unpark(); }
  bool sleep(Duration limit) override;
  std::vector<int> wake_fds() const override { return {waiter_.get()}; }

  std::optional<Error> failure() const override { return failure_; }
  void say_goodbye() override;
  void shutdown(bool orderly) override;
  TrafficCounters traffic(int peer) const override;

 private:
  struct Peer;

  Peer& peer_of(int rank) const;
  void try_memory(Peer& peer, const MemoryToken& token) const;
  ShmSegment own_segment() const;
  Doorbell& own_bell() const;
  std::atomic<std::uint64_t>& counter_word(int owner, std::uint32_t counter) const;
  void move_messages(Peer& peer);
  void read_data(Peer& peer);
  void read_control(Peer& peer);
  void deliver(Peer& peer, std::span<const std::byte> bytes, const PostedReceive& receive);
  void tell_strays();
  bool check_sockets();
  void read_socket(Peer& peer);
  void read_errors();
  void watch(int fd, std::size_t index);
  void fail(Error error);

  static constexpr std::uint32_t kPollsPerCheck = 4096;

  const int rank_;
  const int world_size_;
  const TransportLimits limits_;
  const ShmLayout layout_;
  const std::uint64_t token_;                 ///< The value of this process's MemoryToken.
  FileDescriptor waiter_;                     ///< epoll over the doorbell and the sockets.
  std::vector<std::unique_ptr<Peer>> peers_;  ///< By local rank; `own_index_` is this rank.
  std::vector<int> local_of_rank_;            ///< By rank; -1 for ranks of other nodes.
  std::size_t own_index_ = 0;
  MessageMatcher matcher_;
  AbandonedRuns abandoned_;
  std::vector<ControlFrame> control_;
  std::size_t next_control_ = 0;
  std::uint32_t quiet_polls_ = 0;  ///< Polls without news since the sockets were checked.
  bool check_due_ = false;
  bool is_open_ = false;  ///< All peers have reported that they can read this process.
  PageMap page_map_;
  bool closed_ = false;
  std::optional<Error> failure_;
};

}  // namespace kolo
