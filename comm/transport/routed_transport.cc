#include "comm/transport/routed_transport.h"

#include <ctime>
#include <utility>

#include "comm/base/check.h"

namespace kolo {

RoutedTransport::RoutedTransport(std::unique_ptr<Transport> local,
                                 std::unique_ptr<MessageTransport> network)
    : ForwardingTransport((check(local && network, "routing needs two transports"), *local)),
      local_(std::move(local)),
      network_(std::move(network)) {
  check(local_->rank() == network_->rank() && local_->world_size() == network_->world_size(),
        "the transports to route between belong to different ranks");
  list_wake_fds();
}

void RoutedTransport::commit(std::size_t offset, std::size_t bytes, const Pause& pause) {
  local_->commit(offset, bytes, pause);
  const MutexLock lock(mutex_);
  committed_.push_back(local_->memory(rank()).subspan(offset, bytes));
  has_committed_.store(true, std::memory_order_release);
}

void RoutedTransport::tell_committed() {
  std::vector<std::span<std::byte>> committed;
  {
    const MutexLock lock(mutex_);
    committed.swap(committed_);
    has_committed_.store(false, std::memory_order_relaxed);
  }
  for (const std::span<std::byte> memory : committed) network_->expect_messages_in(memory);
}

bool RoutedTransport::poll() {
  if (has_committed_.load(std::memory_order_acquire)) tell_committed();
  const bool local_moved = local_->poll();
  const bool network_moved = network_->poll();
  note_failure();
  return local_moved || network_moved;
}

bool RoutedTransport::arm() {
  if (!local_->arm()) return false;
  if (network_->arm()) return true;
  local_->unarm();
  return false;
}

bool RoutedTransport::arm_idle() {
  if (!local_->arm_idle()) return false;
  if (network_->arm()) return true;
  local_->unarm();
  return false;
}

bool RoutedTransport::sleep(Duration limit) {
  if (!arm()) return false;
  const timespec time{.tv_sec = limit.count() / 1'000'000'000,
                      .tv_nsec = limit.count() % 1'000'000'000};
  ::ppoll(waited_.data(), waited_.size(), &time, nullptr);
  disarm();
  return true;
}

void RoutedTransport::disarm() {
  local_->disarm();
  network_->disarm();
}

std::vector<int> RoutedTransport::wake_fds() const {
  std::vector<int> fds = local_->wake_fds();
  const std::vector<int> more = network_->wake_fds();
  fds.insert(fds.end(), more.begin(), more.end());
  return fds;
}

void RoutedTransport::shutdown(bool orderly) {
  network_->shutdown(orderly);
  local_->shutdown(orderly);
  list_wake_fds();
  note_failure();
}

void RoutedTransport::list_wake_fds() {
  waited_.clear();
  for (const int fd : wake_fds()) waited_.push_back({.fd = fd, .events = POLLIN, .revents = 0});
}

void RoutedTransport::note_failure() {
  if (failure_) return;
  failure_ = local_->failure();
  if (!failure_) failure_ = network_->failure();
}

}  // namespace kolo
