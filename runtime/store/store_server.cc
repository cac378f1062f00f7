#include "runtime/store/store_server.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "runtime/api/runtime_state.h"

namespace kolo {
namespace {

constexpr std::uint64_t kForEver = std::numeric_limits<std::uint64_t>::max();

void copy_rows(const StoreShard& shard, Span<const std::int64_t> rows, void* out) {
  if (rows.empty()) {
    std::memcpy(out, shard.value.data, shard.value.bytes());
    return;
  }
  const std::size_t row_bytes = shard.row_width * size_of(shard.value.dtype);
  const auto* const from = static_cast<const std::byte*>(shard.value.data);
  auto* to = static_cast<std::byte*>(out);
  for (const std::int64_t row : rows) {
    std::memcpy(to, from + static_cast<std::size_t>(row) * row_bytes, row_bytes);
    to += row_bytes;
  }
}

/// Sleeps until the operation is done. The program's own waits drive the engine, or the engine's
/// thread, which would stand by after this thread drove.
void sleep_until_done(Ticket& ticket) {
  pollfd event{.fd = ticket.event(), .events = POLLIN, .revents = 0};
  while (!ticket.done()) {
    ensure(::poll(&event, 1, -1) >= 0 || errno == EINTR, "poll failed");
  }
}

}  // namespace

StoreServer::StoreServer(Group& group, std::shared_ptr<GroupState> state, bool has_thread)
    : group_(group), state_(std::move(state)), answers_(group) {
  if (has_thread) thread_ = std::thread([this] { serve(); });
}

StoreServer::~StoreServer() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    if (listening_) listening_->cancel();
  }
  join();
}

void StoreServer::join() {
  if (thread_.joinable()) thread_.join();
}

void StoreServer::add(std::uint64_t key, StoreShard shard) {
  const MutexLock lock(mutex_);
  shard.pushes.resize(static_cast<std::size_t>(group_.size()));
  shards_.emplace(key, std::move(shard));
}

void StoreServer::set_updater(StoreUpdater updater) {
  const MutexLock lock(mutex_);
  updater_ = std::move(updater);
}

BufferView StoreServer::pushed(std::uint64_t key) {
  const MutexLock lock(mutex_);
  return shards_.at(key).pushed;
}

void StoreServer::apply_round(std::uint64_t key, double rate) {
  const MutexLock lock(mutex_);
  StoreShard& shard = shards_.at(key);
  if (shard.value.count > 0) update(shard, rate);
  std::ranges::fill(shard.pushes, shard.version.updates);
  shard.version.slowest = shard.version.updates;
  answer_waiting();
}

StoreVersion StoreServer::copy(std::uint64_t key, Span<const std::int64_t> rows, void* out) {
  const MutexLock lock(mutex_);
  const StoreShard& shard = shards_.at(key);
  copy_rows(shard, rows, out);
  return shard.version;
}

void StoreServer::update(StoreShard& shard, double rate) {
  if (updater_) {
    updater_({shard.key, shard.offset, shard.value, shard.pushed, rate});
  } else {
    std::memcpy(shard.value.data, shard.pushed.data, shard.pushed.bytes());
  }
  ++shard.version.updates;
}

// --- Requests of all ranks ----------------------------------------------------------------------

void StoreServer::serve() noexcept {
  try {
    state_->exempt_thread();
    for (int left = group_.size(); left > 0;) {
      StoreRequest request;
      const int source = listen(request);
      handle(source, request);
      if (request.kind == StoreRequest::Kind::kBye) --left;
    }
    return;
  } catch (const KoloError& e) {
    const ErrorCode code = e.error().code;
    const bool has_ended = code == ErrorCode::kShutdown || code == ErrorCode::kPeerLost;
    if (has_ended || code == ErrorCode::kCancelled) return;
    state_->abort(fmt::format("its parameter store: {}", e.what()));
  } catch (const std::exception& e) {
    state_->abort(fmt::format("its parameter store: {}", e.what()));
  }
}

/// Receives a header; returns its sender.
int StoreServer::listen(StoreRequest& request) {
  Ticket ticket = group_.recv(bytes_of(request), kAnyRank, kRequestTag);
  {
    const MutexLock lock(mutex_);
    if (is_stopping_) ticket.cancel();
    listening_ = ticket;
  }
  sleep_until_done(ticket);
  return ticket.received().source;
}

void StoreServer::handle(int source, const StoreRequest& request) {
  std::vector<std::int64_t> rows(request.rows);
  const bool is_push = request.kind == StoreRequest::Kind::kPush;
  if (is_push || !rows.empty()) {
    const BufferView payload = is_push ? pushed(request.key) : BufferView(rows);
    Ticket ticket = group_.recv(payload, source, payload_tag(request.tag));
    sleep_until_done(ticket);
    ticket.wait();
  }
  const MutexLock lock(mutex_);
  if (request.kind == StoreRequest::Kind::kPush) {
    StoreShard& shard = shards_.at(request.key);
    update(shard, request.rate);
    shard.pushes[static_cast<std::size_t>(source)] = request.number;
    shard.version.slowest = *std::ranges::min_element(shard.pushes);
  } else if (request.kind == StoreRequest::Kind::kBye) {
    say_goodbye_for(source);
  } else {
    waiting_.push_back({source, request, std::move(rows)});
  }
  answer_waiting();
}

/// Nobody waits for the pushes of a worker that makes no more.
void StoreServer::say_goodbye_for(int source) {
  for (auto& [key, shard] : shards_) {
    shard.pushes[static_cast<std::size_t>(source)] = kForEver;
    shard.version.slowest = *std::ranges::min_element(shard.pushes);
  }
}

void StoreServer::answer_waiting() {
  std::erase_if(waiting_,
                [this](const Waiting& each) KOLO_REQUIRES(mutex_) { return answer(each); });
}

/// Returns whether it was time to answer.
bool StoreServer::answer(const Waiting& waiting) {
  const StoreRequest& request = waiting.request;
  const std::uint64_t tag = answer_tag(request.tag);
  if (request.kind == StoreRequest::Kind::kFence) {
    const StoreVersion none;
    answers_.send(bytes_of(none), waiting.source, tag);
    return true;
  }
  const StoreShard& shard = shards_.at(request.key);
  if (shard.version.slowest < request.number) return false;
  answers_.send(bytes_of(shard.version), waiting.source, tag);
  if (request.kind == StoreRequest::Kind::kAwait) return true;
  if (waiting.rows.empty()) {
    answers_.send(shard.value, waiting.source, tag);
    return true;
  }
  const std::size_t count = waiting.rows.size() * shard.row_width;
  const AlignedMemory rows = allocate_aligned(count * size_of(shard.value.dtype));
  copy_rows(shard, waiting.rows, rows.get());
  answers_.send(ConstBuffer(rows.get(), count, shard.value.dtype), waiting.source, tag);
  return true;
}

}  // namespace kolo
