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
#include "comm/base/mutex.h"
#include "comm/transport/forwarding_transport.h"

namespace kolo::test {

/// Its `pass` is called before each call of a transport, and may throw or block.
class CallHook {
 public:
  virtual ~CallHook() = default;
  virtual void pass(const char* call) = 0;
};

/// Blocks calls of one function while it is shut, like a system or library call that does not
/// return. Threads: any.
class CallGate final : public CallHook {
 public:
  explicit CallGate(std::string call) : call_(std::move(call)) {}

  void pass(const char* call) override {
    if (call != call_) return;
    MutexLock lock(mutex_);
    holds_ = is_shut_;
    changed_.notify_all();
    changed_.wait(lock, [this]() KOLO_REQUIRES(mutex_) { return !is_shut_; });
    holds_ = false;
  }
  void shut() { set(true); }
  void open() { set(false); }
  /// Blocks until a call is blocked in `pass`.
  void await_call() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [this]() KOLO_REQUIRES(mutex_) { return holds_; });
  }

 private:
  void set(bool is_shut) {
    {
      const MutexLock lock(mutex_);
      is_shut_ = is_shut;
    }
    changed_.notify_all();
  }

  const std::string call_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool is_shut_ KOLO_GUARDED_BY(mutex_) = false;
  bool holds_ KOLO_GUARDED_BY(mutex_) = false;
};

/// Throws at the `at`-th call. Depending on `at`, it throws a std::runtime_error, a KoloError, or
/// an int, which is not derived from an exception class.
class CallFault final : public CallHook {
 public:
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  explicit CallFault(std::size_t at = kNever) : at_(at) {}

  void pass(const char* call) override {
    if (calls_++ != at_ || is_over_) return;
    has_thrown_ = true;
    const std::string text = std::string("planned fault in ") + call;
    if (at_ % 3 == 0) throw std::runtime_error(text);
    if (at_ % 3 == 1) throw KoloError({.code = ErrorCode::kInternal, .what = text});
    throw static_cast<int>(at_);
  }
  /// Returns the number of calls so far.
  std::size_t calls() const { return calls_; }
  bool has_thrown() const { return has_thrown_; }
  /// Stops throwing. Threads: any.
  void end() { is_over_ = true; }

 private:
  const std::size_t at_;
  std::size_t calls_ = 0;
  bool has_thrown_ = false;
  std::atomic<bool> is_over_{false};
};

/// A transport that passes its calls through a `CallHook`, which may throw or block. `ring` and
/// constant properties bypass the hook. `change`, if given, alters the messages that are sent.
class ThrowingTransport final : public ForwardingTransport {
 public:
  using Change = std::function<void(std::vector<std::byte>&)>;

  /// `hook` outlives this object. With a `change`, the wrapped transport must copy what it sends.
  ThrowingTransport(std::unique_ptr<Transport> transport, CallHook& hook, Change change = {})
      : ForwardingTransport(*transport),
        transport_(std::move(transport)),
        hook_(hook),
        change_(std::move(change)) {}

  void expect_messages_in(std::span<std::byte> memory) override {
    hook_.pass("expect_messages_in");
    transport_->expect_messages_in(memory);
  }
  void isend(int peer, const Tag& tag, std::span<const std::byte> data, Completion& done) override {
    hook_.pass("isend");
    if (!change_) return transport_->isend(peer, tag, data, done);
    std::vector<std::byte> changed(data.begin(), data.end());
    change_(changed);
    transport_->isend(peer, tag, changed, done);
  }
  void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) override {
    hook_.pass("irecv");
    transport_->irecv(peer, tag, data, done);
  }
  void abandon(const Tag& first) override {
    hook_.pass("abandon");
    transport_->abandon(first);
  }
  void send_control(int peer, std::span<const std::byte> bytes) override {
    hook_.pass("send_control");
    transport_->send_control(peer, bytes);
  }
  bool receive_control(ControlFrame& frame) override {
    hook_.pass("receive_control");
    return transport_->receive_control(frame);
  }
  bool poll() override {
    hook_.pass("poll");
    return transport_->poll();
  }
  bool arm() override {
    hook_.pass("arm");
    return transport_->arm();
  }
  bool arm_idle() override {
    hook_.pass("arm_idle");
    return transport_->arm_idle();
  }
  void disarm() override {
    hook_.pass("disarm");
    transport_->disarm();
  }
  void unarm() override {
    hook_.pass("unarm");
    transport_->unarm();
  }
  bool sleep(Duration limit) override {
    hook_.pass("sleep");
    return transport_->sleep(limit);
  }
  std::optional<Error> failure() const override {
    hook_.pass("failure");
    return transport_->failure();
  }
  void say_goodbye() override {
    hook_.pass("say_goodbye");
    transport_->say_goodbye();
  }
  void shutdown(bool orderly) override {
    hook_.pass("shutdown");
    transport_->shutdown(orderly);
  }
  std::span<std::byte> memory(int peer) override {
    hook_.pass("memory");
    return transport_->memory(peer);
  }
  void read_memory(int peer, std::uint64_t address, std::span<std::byte> to) override {
    hook_.pass("read_memory");
    transport_->read_memory(peer, address, to);
  }
  void write_memory(int peer, std::uint64_t address, std::span<const std::byte> from) override {
    hook_.pass("write_memory");
    transport_->write_memory(peer, address, from);
  }
  void commit(std::size_t offset, std::size_t bytes, const Pause& pause) override {
    hook_.pass("commit");
    transport_->commit(offset, bytes, pause);
  }
  void signal(int peer, std::uint32_t slot, std::uint64_t value) override {
    hook_.pass("signal");
    transport_->signal(peer, slot, value);
  }
  std::uint64_t signalled(int peer, std::uint32_t slot) const override {
    hook_.pass("signalled");
    return transport_->signalled(peer, slot);
  }
  std::uint64_t arrive(int owner, std::uint32_t counter) override {
    hook_.pass("arrive");
    return transport_->arrive(owner, counter);
  }
  std::uint64_t counter(int owner, std::uint32_t counter) const override {
    hook_.pass("counter");
    return transport_->counter(owner, counter);
  }
  void set_counter(std::uint32_t counter, std::uint64_t value) override {
    hook_.pass("set_counter");
    transport_->set_counter(counter, value);
  }

 private:
  const std::unique_ptr<Transport> transport_;
  CallHook& hook_;
  const Change change_;
};

}  // namespace kolo::test
