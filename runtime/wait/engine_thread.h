#pragma once

#include <thread>

#include "runtime/wait/driver.h"

namespace kolo {

/// The thread that drives an engine while no user's thread does; see `Driver`.
class EngineThread {
 public:
  explicit EngineThread(Driver& driver);
  /// Waits for the engine to end.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

 private:
  std::thread thread_;
};

}  // namespace kolo
