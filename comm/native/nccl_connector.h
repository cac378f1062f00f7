#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "comm/device/group_connector.h"

namespace kolo {

/// Connects further groups by NCCL, each by a communicator of its own.
///
/// NCCL connects on a thread of its own, which allocates memory of the GPU; ranks that are not
/// connected within the deadline are a time-out.
class NcclConnector final : public GroupConnector {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// For GPU `device` of this rank.
  NcclConnector(int device, Milliseconds deadline) : device_(device), deadline_(deadline) {}

  std::size_t invitation_bytes() const override;
  std::vector<std::byte> invite() override;
  std::unique_ptr<ConnectingGroup> connect(std::span<const std::byte> invitation, int rank,
                                           int size) override;

 private:
  const int device_;
  const Milliseconds deadline_;
};

}  // namespace kolo
