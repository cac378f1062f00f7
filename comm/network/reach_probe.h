#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"
#include "comm/network/interface_choice.h"

namespace kolo {

/// Answers each connection with the job and node of this machine, because several machines may have
/// the same address. From `serve` to destruction, a background thread sends a few bytes on each
/// connection and reads nothing. Earlier connections wait for `serve`.
///
/// Threads: any. Errors: KoloError(kIo) if no port is available.
class ReachListener {
 public:
  ReachListener();
  ~ReachListener();
  ReachListener(const ReachListener&) = delete;
  ReachListener& operator=(const ReachListener&) = delete;

  std::uint16_t port() const;

  /// Starts to answer. Call it once. `job_id` is not secret and has at most kMaxJobIdBytes bytes.
  void serve(const std::string& job_id, int node);

  static constexpr std::size_t kMaxJobIdBytes = 32;

 private:
  void answer_all() noexcept;

  std::string greeting_;  // constant while the thread runs
  const FileDescriptor listener_;
  const FileDescriptor stop_;
  std::thread thread_;
};

/// Another node, with the addresses and port of its `ReachListener`.
struct ReachTarget {
  int node = 0;
  std::vector<NetworkInterface> interfaces;
  std::uint16_t port = 0;
};

struct ReachLimits {
  Duration all = std::chrono::seconds(5);
  /// Time for further addresses after every node has answered at one address.
  Duration more_ways = std::chrono::milliseconds(200);
  int at_once = 128;  ///< Limit of concurrent connection attempts.
};

/// Connects to all addresses of the targets. Returns the addresses that answered, and the interface
/// of `mine` through which each was reached.
///
/// Threads: any; blocks for at most `limits.all`. Cost: one connection per address.
/// Errors:  none; a failed attempt is reported in `NodeReach::no_ways`.
NodeReach probe_reach(const std::string& job_id, const std::vector<NetworkInterface>& mine,
                      const std::vector<ReachTarget>& targets, const ReachLimits& limits = {});

}  // namespace kolo
