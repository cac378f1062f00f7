#include "comm/native/nccl_connector.h"

#include <utility>

#include "comm/native/nccl_communicator.h"
#include "comm/native/nccl_group.h"
#include "comm/native/nccl_handles.h"
#include "comm/native/nccl_introduction.h"

namespace kolo {
namespace {

class NcclConnectingGroup final : public ConnectingGroup {
 public:
  NcclConnectingGroup(std::shared_ptr<NcclCommunicator> communicator,
                      std::chrono::milliseconds deadline)
      : communicator_(std::move(communicator)),
        give_up_(std::chrono::steady_clock::now() + deadline) {}
  ~NcclConnectingGroup() override {
    if (communicator_) communicator_->begin_abort();
  }
  NcclConnectingGroup(const NcclConnectingGroup&) = delete;
  NcclConnectingGroup& operator=(const NcclConnectingGroup&) = delete;

  std::unique_ptr<LocalGroup> poll() override {
    const ncclResult_t state = communicator_->state();
    const bool is_late = std::chrono::steady_clock::now() >= give_up_;
    if (state == ncclInProgress && !is_late) return nullptr;
    require_nccl(state, communicator_->get(), "connecting the ranks of a group");
    return std::make_unique<NcclGroup>(std::exchange(communicator_, nullptr));
  }

 private:
  std::shared_ptr<NcclCommunicator> communicator_;
  const std::chrono::steady_clock::time_point give_up_;
};

}  // namespace

std::size_t NcclConnector::invitation_bytes() const { return sizeof(NcclIntroduction); }

std::vector<std::byte> NcclConnector::invite() {
  NcclIntroduction introduction{.version = checked_nccl_version()};
  require_nccl(ncclGetUniqueId(&introduction.id), nullptr, "ncclGetUniqueId");
  const auto bytes = introduction.bytes();
  return {bytes.begin(), bytes.end()};
}

std::unique_ptr<ConnectingGroup> NcclConnector::connect(std::span<const std::byte> invitation,
                                                        int rank, int size) {
  const NcclIntroduction first = NcclIntroduction::from_bytes(invitation);
  check_same_nccl(first, rank, checked_nccl_version());
  return std::make_unique<NcclConnectingGroup>(
      NcclCommunicator::begin(first.id, rank, size, device_, deadline_), deadline_);
}

}  // namespace kolo
