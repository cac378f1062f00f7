#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "comm/base/error.h"
#include "comm/base/mutex.h"
#include "comm/device/device_communicator.h"
#include "tests/support/device/host_communicator.h"

namespace kolo::test {

/// Connects host communicators among ranks of one process. Threads: any.
class HostConnections {
 public:
  /// Returns a connector for ranks that use `device`. The device and this object outlive it.
  std::unique_ptr<CommunicatorConnector> connector(Device& device) {
    return std::make_unique<Connector>(*this, device);
  }

  /// Makes all further connection attempts time out.
  void fail() {
    const MutexLock lock(mutex_);
    fails_ = true;
  }

  /// See `HostCommunicatorHub`; for all groups that connect from now on.
  void launch_together() {
    const MutexLock lock(mutex_);
    launches_together_ = true;
  }

  /// Returns the number of groups to which all their ranks have connected.
  std::size_t connected() {
    const MutexLock lock(mutex_);
    return static_cast<std::size_t>(
        std::ranges::count_if(groups_, [](const auto& each) { return each.second.is_complete(); }));
  }

 private:
  struct Group {
    std::unique_ptr<HostCommunicatorHub> hub;
    int missing = 0;
    bool is_complete() const { return missing == 0; }
  };

  class Connecting final : public ConnectingCommunicator {
   public:
    Connecting(HostConnections& all, std::uint64_t number,
               std::unique_ptr<DeviceCommunicator> group)
        : all_(all), number_(number), group_(std::move(group)) {}
    std::unique_ptr<DeviceCommunicator> poll() override {
      return all_.is_complete(number_) ? std::move(group_) : nullptr;
    }

   private:
    HostConnections& all_;
    const std::uint64_t number_;
    std::unique_ptr<DeviceCommunicator> group_;
  };

  class Connector final : public CommunicatorConnector {
   public:
    Connector(HostConnections& all, Device& device) : all_(all), device_(device) {}
    std::size_t unique_id_bytes() const override { return sizeof(std::uint64_t); }
    std::vector<std::byte> make_unique_id() override {
      const std::uint64_t number = all_.next();
      const auto bytes = std::as_bytes(std::span(&number, 1));
      return {bytes.begin(), bytes.end()};
    }
    std::unique_ptr<ConnectingCommunicator> connect(std::span<const std::byte> unique_id, int rank,
                                                    int size) override {
      std::uint64_t number = 0;
      std::memcpy(&number, unique_id.data(), sizeof(number));
      return std::make_unique<Connecting>(all_, number, all_.join(number, rank, size, device_));
    }

   private:
    HostConnections& all_;
    Device& device_;
  };

  std::uint64_t next() {
    const MutexLock lock(mutex_);
    return drawn_++;
  }
  bool is_complete(std::uint64_t number) {
    const MutexLock lock(mutex_);
    if (fails_) throw KoloError({.code = ErrorCode::kTimeout, .what = "no rank was found"});
    return groups_.at(number).is_complete();
  }
  std::unique_ptr<DeviceCommunicator> join(std::uint64_t number, int rank, int size,
                                           Device& device) {
    const MutexLock lock(mutex_);
    Group& group = groups_[number];
    if (!group.hub) {
      std::vector<int> members(static_cast<std::size_t>(size));
      std::iota(members.begin(), members.end(), 0);
      group = {.hub = std::make_unique<HostCommunicatorHub>(members), .missing = size};
      if (launches_together_) group.hub->launch_together();
    }
    --group.missing;
    return group.hub->group(rank, device);
  }

  Mutex mutex_;
  std::uint64_t drawn_ KOLO_GUARDED_BY(mutex_) = 0;
  bool fails_ KOLO_GUARDED_BY(mutex_) = false;
  bool launches_together_ KOLO_GUARDED_BY(mutex_) = false;
  std::map<std::uint64_t, Group> groups_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo::test
