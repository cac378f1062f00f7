#pragma once

#include <chrono>
#include <thread>

#include "comm/base/unique_handle.h"
#include "comm/transport/transport.h"
#include "runtime/engine.h"

namespace kolo {

/// The thread that polls an engine: as long as anything moves it polls, then for `spin` longer,
/// then it parks until a peer, the network or a user's thread rings. An idle engine parks without a
/// time limit: no system call, no packet.
class EngineThread {
 public:
  EngineThread(Engine& engine, Transport& transport, std::chrono::microseconds spin);
  /// Waits for the engine to end.
  ~EngineThread();

 private:
  void run();
  void park();

  Engine& engine_;
  Transport& transport_;
  const std::chrono::microseconds spin_;
  FileDescriptor waiter_;
  std::thread thread_;
};

/// How long to spin where ranks share a machine of `cores`: a little if each rank has a core, which
/// a thread that waits for its engine leaves free; else not at all.
std::chrono::microseconds default_spin(unsigned cores, int local_size);

}  // namespace kolo
