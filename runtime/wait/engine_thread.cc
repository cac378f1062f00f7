#include "runtime/wait/engine_thread.h"

#include <pthread.h>

namespace kolo {

EngineThread::EngineThread(Driver& driver) : thread_([&driver] { driver.run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "kolo-engine");
}

EngineThread::~EngineThread() { thread_.join(); }

}  // namespace kolo
