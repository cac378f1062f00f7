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

/// Tells whoever connects which node of which job answers: one address may belong to several
/// machines. A thread serves from `serve` to destruction; it sends a few bytes to each connection
/// and reads nothing. Who connects earlier waits.
///
/// Threads: any. Errors: KoloError(kIo) if no port can be had.
class ReachListener {
 public:
  ReachListener();
  ~ReachListener();
  ReachListener(const ReachListener&) = delete;
  ReachListener& operator=(const ReachListener&) = delete;

  std::uint16_t port() const;

  /// Answers from now on. Once. `job_id` is no secret; at most kMaxJobIdBytes.
  void serve(const std::string& job_id, int node);

  static constexpr std::size_t kMaxJobIdBytes = 32;

 private:
  void answer_all() noexcept;

  std::string greeting_;  // fixed while the thread runs
  const FileDescriptor listener_;
  const FileDescriptor stop_;
  std::thread thread_;
};

/// Another node, and where its `ReachListener` may be found.
struct ReachTarget {
  int node = 0;
  std::vector<NetworkInterface> interfaces;
  std::uint16_t port = 0;
};

struct ReachLimits {
  Duration all = std::chrono::seconds(5);
  /// For further addresses, once all nodes have answered at one.
  Duration more_ways = std::chrono::milliseconds(200);
  int at_once = 128;  ///< Connections under way.
};

/// Connects to all addresses of the targets, and says which of them answered and through which of
/// `mine` the system went there. `more_ways` bounds what addresses that never answer cost.
///
/// Threads: any; it blocks. Cost: one connection per address, `at_once` at a time.
/// Errors:  KoloError(kIo) if a node cannot open sockets.
NodeReach probe_reach(const std::string& job_id, const std::vector<NetworkInterface>& mine,
                      const std::vector<ReachTarget>& targets, const ReachLimits& limits = {});

}  // namespace kolo
