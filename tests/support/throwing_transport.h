#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/error.h"
#include "comm/transport/transport.h"

namespace kolo::test {

/// Throws at one of the calls that it is told of: by turns an exception of the standard library, a
/// KoloError, and something that is no exception class at all.
class CallFault {
 public:
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  explicit CallFault(std::size_t at = kNever) : at_(at) {}

  void pass(const char* call) {
    if (calls_++ != at_ || is_over_) return;
    has_thrown_ = true;
    const std::string text = std::string("planned fault in ") + call;
    if (at_ % 3 == 0) throw std::runtime_error(text);
    if (at_ % 3 == 1) throw KoloError({.code = ErrorCode::kInternal, .what = text});
    throw static_cast<int>(at_);
  }
  /// That came so far.
  std::size_t calls() const { return calls_; }
  bool has_thrown() const { return has_thrown_; }
  /// Nothing is thrown any more. Threads: any.
  void end() { is_over_ = true; }

 private:
  const std::size_t at_;
  std::size_t calls_ = 0;
  bool has_thrown_ = false;
  std::atomic<bool> is_over_{false};
};

/// A transport each of whose calls but `ring` and constant properties may throw before it does
/// anything, and whose messages may be changed on their way out.
class ThrowingTransport final : public Transport {
 public:
  using Change = std::function<void(std::vector<std::byte>&)>;

  /// `fault` outlives it. With a `change`, the transport below must copy what it sends.
  ThrowingTransport(std::unique_ptr<Transport> transport, CallFault& fault, Change change = {})
      : transport_(std::move(transport)), fault_(fault), change_(std::move(change)) {}

  int rank() const override { return transport_->rank(); }
  int world_size() const override { return transport_->world_size(); }
  bool takes_device_memory() const override { return transport_->takes_device_memory(); }
  bool is_mapped(int peer) const override { return transport_->is_mapped(peer); }
  std::vector<int> wake_fds() const override { return transport_->wake_fds(); }
  TrafficCounters traffic(int peer) const override { return transport_->traffic(peer); }
  void ring(int peer) override { transport_->ring(peer); }

  void expect_messages_in(std::span<std::byte> memory) override {
    fault_.pass("expect_messages_in");
    transport_->expect_messages_in(memory);
  }
  void isend(int peer, const Tag& tag, std::span<const std::byte> data, Completion& done) override {
    fault_.pass("isend");
    if (!change_) return transport_->isend(peer, tag, data, done);
    std::vector<std::byte> changed(data.begin(), data.end());
    change_(changed);
    transport_->isend(peer, tag, changed, done);
  }
  void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) override {
    fault_.pass("irecv");
    transport_->irecv(peer, tag, data, done);
  }
  void abandon(const Tag& first) override {
    fault_.pass("abandon");
    transport_->abandon(first);
  }
  void send_control(int peer, std::span<const std::byte> bytes) override {
    fault_.pass("send_control");
    transport_->send_control(peer, bytes);
  }
  bool receive_control(ControlFrame& frame) override {
    fault_.pass("receive_control");
    return transport_->receive_control(frame);
  }
  bool poll() override {
    fault_.pass("poll");
    return transport_->poll();
  }
  bool arm() override {
    fault_.pass("arm");
    return transport_->arm();
  }
  bool arm_idle() override {
    fault_.pass("arm_idle");
    return transport_->arm_idle();
  }
  void disarm() override {
    fault_.pass("disarm");
    transport_->disarm();
  }
  void unarm() override {
    fault_.pass("unarm");
    transport_->unarm();
  }
  void sleep(Duration limit) override {
    fault_.pass("sleep");
    transport_->sleep(limit);
  }
  std::optional<Error> failure() const override {
    fault_.pass("failure");
    return transport_->failure();
  }
  void shutdown(bool orderly) override {
    fault_.pass("shutdown");
    transport_->shutdown(orderly);
  }
  std::span<std::byte> memory(int peer) override {
    fault_.pass("memory");
    return transport_->memory(peer);
  }
  void commit(std::size_t offset, std::size_t bytes) override {
    fault_.pass("commit");
    transport_->commit(offset, bytes);
  }
  void signal(int peer, std::uint32_t slot, std::uint64_t value) override {
    fault_.pass("signal");
    transport_->signal(peer, slot, value);
  }
  std::uint64_t signalled(int peer, std::uint32_t slot) const override {
    fault_.pass("signalled");
    return transport_->signalled(peer, slot);
  }
  std::uint64_t arrive(int owner, std::uint32_t counter) override {
    fault_.pass("arrive");
    return transport_->arrive(owner, counter);
  }
  std::uint64_t counter(int owner, std::uint32_t counter) const override {
    fault_.pass("counter");
    return transport_->counter(owner, counter);
  }
  void set_counter(std::uint32_t counter, std::uint64_t value) override {
    fault_.pass("set_counter");
    transport_->set_counter(counter, value);
  }

 private:
  const std::unique_ptr<Transport> transport_;
  CallFault& fault_;
  const Change change_;
};

}  // namespace kolo::test
