#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <vector>

#include "comm/base/mutex.h"
#include "comm/transport/control_frames.h"
#include "comm/transport/forwarding_transport.h"

namespace kolo {

/// Combines two transports: messages to peers that `local` has mapped use `local`, all others use
/// `network`. Both use world ranks.
///
/// Errors: `failure()` is the first failure of either transport.
class RoutedTransport final : public ForwardingTransport {
 public:
  RoutedTransport(std::unique_ptr<Transport> local, std::unique_ptr<MessageTransport> network);

  /// As in `network`; data of mapped peers needs no messages.
  bool takes_device_memory() const override { return network_->takes_device_memory(); }

  void isend(int peer, const Tag& tag, std::span<const std::byte> data, Completion& done) override {
    way_to(peer).isend(peer, tag, data, done);
  }
  void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) override {
    way_to(peer).irecv(peer, tag, data, done);
  }
  bool cancel(Completion& done) override { return network_->cancel(done) && local_->cancel(done); }
  void abandon(const Tag& first) override {
    local_->abandon(first);
    network_->abandon(first);
  }
  void send_control(int peer, std::span<const std::byte> bytes) override {
    way_to(peer).send_control(peer, bytes);
  }
  bool receive_control(ControlFrame& frame) override {
    if (local_->receive_control(frame)) return true;
    while (network_->receive_control(frame)) {
      if (!is_mapped(frame.peer)) return true;
      foreign_.drop(frame.peer, "that one is on this node");
    }
    return false;
  }

  /// The next `poll` tells the network, which only the driving thread may call.
  void commit(std::size_t offset, std::size_t bytes, const Pause& pause) override;

  bool poll() override;
  bool arm() override;
  void disarm() override;
  bool arm_idle() override;
  bool sleep(Duration limit) override;
  std::vector<int> wake_fds() const override;

  std::optional<Error> failure() const override { return failure_; }
  void say_goodbye() override {
    local_->say_goodbye();
    network_->say_goodbye();
  }
  void shutdown(bool orderly) override;
  TrafficCounters traffic(int peer) const override { return way_to(peer).traffic(peer); }

 private:
  MessageTransport& way_to(int peer) const {
    if (local_->is_mapped(peer)) return *local_;
    return *network_;
  }
  void tell_committed();
  void note_failure();
  void list_wake_fds();

  std::unique_ptr<Transport> local_;
  std::unique_ptr<MessageTransport> network_;
  std::vector<pollfd> waited_;  // the descriptors of `wake_fds()`, which `sleep` polls
  std::optional<Error> failure_;
  ForeignFrames foreign_;
  Mutex mutex_;
  std::vector<std::span<std::byte>> committed_ KOLO_GUARDED_BY(mutex_);  // the network is not told
  std::atomic<bool> has_committed_{false};
};

}  // namespace kolo
