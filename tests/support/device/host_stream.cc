#include "tests/support/device/host_stream.h"

#include <cstring>
#include <exception>
#include <utility>

#include "comm/base/check.h"

namespace kolo {
namespace {

template <typename Host, typename Any>
Host& cast(Any& any) {
  auto* const host = dynamic_cast<Host*>(&any);
  check(host != nullptr, "this stream or event belongs to another kind of device");
  return *host;
}

}  // namespace

void HostStream::enqueue(StreamTask task) {
  progress_->throw_if_failed();
  push(std::move(task));
  ++enqueued_;
}

void HostStream::copy(const BufferView& target, const BufferView& source) {
  check_copy(target, source);
  enqueue([to = target.data, from = source.data, bytes = target.bytes()] {
    if (bytes > 0) std::memmove(to, from, bytes);
    return true;
  });
}

void HostStream::record(Event& event) { as_host(event).set(progress_, enqueued_); }

void HostStream::wait(const Event& event) {
  // Captures the recorded position, so a later record on the event does not affect this wait.
  const HostEvent& awaited = as_host(event);
  if (awaited.progress() == nullptr || awaited.progress() == progress_) return;
  enqueue([progress = awaited.progress(), position = awaited.position()] {
    return progress->reached(position);
  });
}

bool HostStream::attempt(StreamTask& task) noexcept {
  try {
    if (!task()) return false;
    progress_->complete_one();
  } catch (const KoloError& error) {
    progress_->fail(error.error());
  } catch (const std::exception& error) {
    progress_->fail(Error{.code = ErrorCode::kInternal, .what = error.what()});
  }
  return true;
}

void HostStream::drop_unfinished() noexcept {
  if (progress_->failed() || progress_->reached(enqueued_)) return;
  progress_->fail(Error{.code = ErrorCode::kInternal,
                        .what = "a stream was destroyed before its work was complete"});
}

HostStream& as_host(Stream& stream) { return cast<HostStream>(stream); }
HostEvent& as_host(Event& event) { return cast<HostEvent>(event); }
const HostEvent& as_host(const Event& event) { return cast<const HostEvent>(event); }

}  // namespace kolo
