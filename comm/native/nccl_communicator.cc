#include "comm/native/nccl_communicator.h"

#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "comm/base/log.h"
#include "comm/device/cuda_device.h"
#include "comm/native/nccl_handles.h"
#include "comm/native/nccl_library.h"

namespace kolo {
namespace {

/// Number of polls before the first pause. A launch takes microseconds unless it waits for a peer,
/// a connection much longer.
constexpr int kPollsAtOnce = 1000;
constexpr std::chrono::microseconds kPause{100};

/// Calls of a thread may be in progress at the same time from this version on. Before, NCCL has one
/// state for all calls of a thread (`ncclGroupJobMain`).
constexpr int kCallsOverlapSince = NCCL_VERSION(2, 27, 3);

/// Whether the user wants calls that block until NCCL has enqueued them.
bool may_block() {
  const char* const wish = std::getenv("NCCL_COMM_BLOCKING");
  return wish != nullptr && wish == std::string_view("1");
}

ncclConfig_t make_config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = may_block() ? 1 : 0;
  return config;
}

}  // namespace

std::shared_ptr<NcclCommunicator> NcclCommunicator::connect(const ncclUniqueId& id, int rank,
                                                            int size, int device,
                                                            Milliseconds deadline) {
  auto made = begin(id, rank, size, device, deadline);
  const CudaDeviceGuard guard(device);
  const ncclResult_t result = made->settle(ncclInProgress);
  if (result != ncclSuccess) {
    const Error error = nccl_error(result, made->get(), "connecting the ranks");
    made->begin_abort();
    throw KoloError(error);
  }
  return made;
}

template <typename Call>
ncclResult_t NcclCommunicator::begin_call(Call call) {
  if (!may_block()) return call();
  std::packaged_task<ncclResult_t()> task(
      [self = shared_from_this(), call = std::move(call)]() mutable {
        const CudaDeviceGuard guard(self->device_);
        return call();
      });
  blocking_ = task.get_future().share();
  std::thread(std::move(task)).detach();
  return ncclInProgress;
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::begin(const ncclUniqueId& id, int rank,
                                                          int size, int device,
                                                          Milliseconds deadline, int most_blocks) {
  const CudaDeviceGuard guard(device);
  auto made = std::make_shared<NcclCommunicator>(device, deadline);
  ncclConfig_t config = make_config();
  if (most_blocks > 0) config.maxCTAs = most_blocks;
  const auto init = [comm = &made->comm_, size, id, rank, config]() mutable {
    return nccl().ncclCommInitRankConfig(comm, size, id, rank, &config);
  };
  const ncclResult_t result = made->begin_call(init);
  if (result == ncclSuccess || result == ncclInProgress) return made;
  const Error error = nccl_error(result, made->get(), "connecting the ranks");
  made->begin_abort();
  throw KoloError(error);
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::split(int color, int rank) {
  const CudaDeviceGuard guard(device_);
  connecting_ = std::make_shared<NcclCommunicator>(device_, deadline_);
  const auto divide = [parent = comm_, color, rank, child = &connecting_->comm_,
                       config = make_config()]() mutable {
    return nccl().ncclCommSplit(parent, color, rank, child, &config);
  };
  ncclResult_t result = connecting_->begin_call(divide);
  // NCCL sets the child's handle once the parent has settled; the child settles separately.
  if (result == ncclSuccess || result == ncclInProgress) result = settle(ncclInProgress);
  if (result == ncclSuccess) result = connecting_->settle(ncclInProgress);
  if (result != ncclSuccess) {
    const Error error = nccl_error(result, comm_, "connecting the ranks of a node");
    // While the parent has not settled, the child belongs to NCCL and ends with the parent.
    if (state() != ncclInProgress) connecting_->begin_abort();
    begin_abort();
    throw KoloError(error);
  }
  return std::exchange(connecting_, nullptr);
}

bool NcclCommunicator::is_blocked() const {
  return blocking_.valid() && blocking_.wait_for(Milliseconds::zero()) != std::future_status::ready;
}

ncclResult_t NcclCommunicator::state() const {
  if (ended_.valid()) return wait_ended(Milliseconds::zero()) ? ncclSuccess : ncclInProgress;
  if (is_blocked()) return ncclInProgress;
  if (blocking_.valid() && blocking_.get() != ncclSuccess) return blocking_.get();
  const CudaDeviceGuard guard(device_);  // for captures: see there
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = nccl().ncclCommGetAsyncError(comm_, &state);
  return result == ncclSuccess ? state : result;
}

ncclResult_t NcclCommunicator::settle(ncclResult_t result) const {
  const auto give_up = std::chrono::steady_clock::now() + deadline_;
  result = settle_briefly(result);
  while (result == ncclInProgress && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(kPause);
    result = state();
  }
  return result;
}

ncclResult_t NcclCommunicator::settle_launch(ncclResult_t result) const {
  return checked_nccl_version() < kCallsOverlapSince ? settle(result) : settle_briefly(result);
}

ncclResult_t NcclCommunicator::settle_briefly(ncclResult_t result) const {
  for (int polls = 0; result == ncclInProgress && polls < kPollsAtOnce; ++polls) {
    std::this_thread::yield();
    result = state();
  }
  return result;
}

void NcclCommunicator::when_ready(std::function<void()> call) {
  postponed_.push_back(std::move(call));
  if (get() == nullptr || state() != ncclInProgress) call_postponed();
}

void NcclCommunicator::call_postponed() {
  for (const auto& call : std::exchange(postponed_, {})) call();
}

void NcclCommunicator::begin_release(ncclResult_t (*end)(ncclComm_t), const char* name) noexcept {
  if (ended_.valid() || (!is_blocked() && comm_ == nullptr)) return;
  try {
    // On a separate thread, because NCCL may wait for the device, and thereby for the abort of
    // another communicator. While a blocking call runs, NCCL takes no other.
    std::packaged_task<void()> release([self = shared_from_this(), before = blocking_, end, name] {
      if (before.valid()) before.wait();
      const ncclComm_t comm = std::exchange(self->comm_, nullptr);
      if (comm == nullptr) return;  // It was not connected.
      close_on(self->device_, [=] { log_nccl(end(comm), name); });
    });
    std::future<void> ended = release.get_future();
    std::thread(std::move(release)).detach();
    ended_ = std::move(ended);
    call_postponed();
  } catch (const std::exception& error) {
    log::error(std::string("NCCL: ") + name + " could not begin: " + error.what());
  }
}

void NcclCommunicator::begin_abort() noexcept {
  begin_release(nccl().ncclCommAbort, "ncclCommAbort");
}

void NcclCommunicator::begin_destroy() noexcept {
  begin_release(nccl().ncclCommDestroy, "ncclCommDestroy");
}

bool NcclCommunicator::wait_ended(Milliseconds within) const {
  return ended_.valid() && ended_.wait_for(within) == std::future_status::ready;
}

ncclResult_t NcclCommunicator::begin_end() {
  const CudaDeviceGuard guard(device_);
  return begin_call([comm = comm_] { return nccl().ncclCommFinalize(comm); });
}

}  // namespace kolo
