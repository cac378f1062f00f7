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

/// Tells each client which node of which job answers: one address may belong to several machines. A
/// thread serves from `serve` until destruction; it sends a few bytes on each connection and reads
/// nothing. Earlier connections wait for `serve`.
///
/// Threads: any. Errors: KoloError(kIo) if no port is available.
class ReachListener {
 public:
  ReachListener();
  ~ReachListener();
  ReachListener(const ReachListener&) = delete;
  ReachListener& operator=(const ReachListener&) = delete;

  std::uint16_t port() const;

  /// Starts to answer. Call once. `job_id` is not secret; at most kMaxJobIdBytes.
  void serve(const std::string& job_id, int node);

  static constexpr std::size_t kMaxJobIdBytes = 32;

 private:
  void answer_all() noexcept;

  std::string greeting_;  // fixed while the thread runs
  const FileDescriptor listener_;
  const FileDescriptor stop_;
  std::thread thread_;
};

/// Another node, and the addresses of its `ReachListener`.
struct ReachTarget {
  int node = 0;
  std::vector<NetworkInterface> interfaces;
  std::uint16_t port = 0;
};

struct ReachLimits {
  Duration all = std::chrono::seconds(5);
  /// Time for further addresses, once all nodes have answered at one.
  Duration more_ways = std::chrono::milliseconds(200);
  int at_once = 128;  ///< Maximum of concurrent connection attempts.
};

/// Connects to all addresses of the targets. Returns which of them answered, and through which
/// interface of `mine`. `more_ways` bounds the time spent on addresses that never answer.
///
/// Threads: any; blocks. Cost: one connection per address, `at_once` at a time.
/// Errors:  KoloError(kIo) if a node cannot open sockets.
NodeReach probe_reach(const std::string& job_id, const std::vector<NetworkInterface>& mine,
                      const std::vector<ReachTarget>& targets, const ReachLimits& limits = {});

}  // namespace kolo
