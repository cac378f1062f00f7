#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/device/group_connector.h"
#include "comm/schedule/bucket_layout.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Connects the device collectives of all ranks of a transport, a group's, when they are first
/// needed: from the plan of a bucket on, which all ranks make at the same agreement.
///
///   idle --expect--> expected --the invitation is here--> connecting --> connected
///
/// The first rank draws the invitation, and sends it to the others when a bucket starts: then all
/// of them expect it.
///
/// Threads: the executor's. Nothing blocks.
class LateGroup {
 public:
  /// Both outlive it.
  LateGroup(Transport& transport, GroupConnector& connector)
      : transport_(transport), connector_(connector) {}

  /// A bucket that needs the group is planned; its first iteration is `iteration`. Does nothing
  /// after the first time.
  void expect(BucketId bucket, std::uint64_t iteration);
  /// Such a bucket starts, on all ranks. The same. Errors: those of `GroupConnector::invite`.
  void start();

  /// Moves the connection on. Returns the group when it is connected, once. Errors: those of
  /// `GroupConnector` and `ConnectingGroup`.
  std::unique_ptr<LocalGroup> poll();

  /// A bucket has started, and waits for it.
  bool is_busy() const { return is_started_ && state_ != State::kOver; }
  /// What has begun is given up, and nothing begins.
  void give_up();

 private:
  enum class State : std::uint8_t { kIdle, kExpected, kConnecting, kOver };

  bool is_first() const { return transport_.rank() == 0; }

  Transport& transport_;
  GroupConnector& connector_;
  State state_ = State::kIdle;
  bool is_started_ = false;
  Tag tag_ = {};
  std::vector<std::byte> invitation_;
  std::vector<Completion> messages_;
  std::unique_ptr<ConnectingGroup> connecting_;
};

}  // namespace kolo
