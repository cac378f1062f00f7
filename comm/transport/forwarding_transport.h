#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/transport/transport.h"

namespace kolo {

/// Forwards every call to another transport. Derived classes override the calls that they change.
class ForwardingTransport : public Transport {
 public:
  /// `below` must outlive the last call.
  explicit ForwardingTransport(Transport& below) : below_(below) {}

  int rank() const override { return below_.rank(); }
  int world_size() const override { return below_.world_size(); }
  bool takes_device_memory() const override { return below_.takes_device_memory(); }
  void expect_messages_in(std::span<std::byte> memory) override {
    below_.expect_messages_in(memory);
  }
  void isend(int peer, const Tag& tag, std::span<const std::byte> data, Completion& done) override {
    below_.isend(peer, tag, data, done);
  }
  void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) override {
    below_.irecv(peer, tag, data, done);
  }
  void abandon(const Tag& first) override { below_.abandon(first); }
  bool cancel(Completion& done) override { return below_.cancel(done); }
  void send_control(int peer, std::span<const std::byte> bytes) override {
    below_.send_control(peer, bytes);
  }
  bool receive_control(ControlFrame& frame) override { return below_.receive_control(frame); }

  bool is_mapped(int peer) const override { return below_.is_mapped(peer); }
  std::span<std::byte> memory(int peer) override { return below_.memory(peer); }
  std::span<const std::byte> shared_memory() override { return below_.shared_memory(); }
  bool is_open_to_peers() override { return below_.is_open_to_peers(); }
  bool is_in_huge_pages(std::span<const std::byte> memory) override {
    return below_.is_in_huge_pages(memory);
  }
  void read_memory(int peer, std::uint64_t address, std::span<std::byte> to) override {
    below_.read_memory(peer, address, to);
  }
  void write_memory(int peer, std::uint64_t address, std::span<const std::byte> from) override {
    below_.write_memory(peer, address, from);
  }
  void commit(std::size_t offset, std::size_t bytes, const Pause& pause) override {
    below_.commit(offset, bytes, pause);
  }
  void signal(int peer, std::uint32_t slot, std::uint64_t value) override {
    below_.signal(peer, slot, value);
  }
  std::uint64_t signalled(int peer, std::uint32_t slot) const override {
    return below_.signalled(peer, slot);
  }
  std::uint64_t arrive(int owner, std::uint32_t counter) override {
    return below_.arrive(owner, counter);
  }
  std::uint64_t counter(int owner, std::uint32_t counter) const override {
    return below_.counter(owner, counter);
  }
  void set_counter(std::uint32_t counter, std::uint64_t value) override {
    below_.set_counter(counter, value);
  }

  bool poll() override { return below_.poll(); }
  void ring(int peer) override { below_.ring(peer); }
  void post_error(const Error& error) override { below_.post_error(error); }
  void note_stuck(std::string_view verb) override { below_.note_stuck(verb); }
  std::string stuck_in(int peer) const override { return below_.stuck_in(peer); }
  bool arm() override { return below_.arm(); }
  void disarm() override { below_.disarm(); }
  bool arm_idle() override { return below_.arm_idle(); }
  void unarm() override { below_.unarm(); }
  bool sleep(Duration limit) override { return below_.sleep(limit); }
  std::vector<int> wake_fds() const override { return below_.wake_fds(); }

  std::optional<Error> failure() const override { return below_.failure(); }
  void say_goodbye() override { below_.say_goodbye(); }
  void shutdown(bool orderly) override { below_.shutdown(orderly); }
  TrafficCounters traffic(int peer) const override { return below_.traffic(peer); }

 protected:
  Transport& below() const { return below_; }

 private:
  Transport& below_;
};

}  // namespace kolo
