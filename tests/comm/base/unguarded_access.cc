// Input of thread_safety_test.sh, not part of any program. It compiles, but with
// KOLO_TEST_UNGUARDED it must not compile if Clang checks the annotations.

#include "comm/base/mutex.h"

namespace kolo {

class Counter {
 public:
  void add() KOLO_EXCLUDES(mutex_) {
#ifndef KOLO_TEST_UNGUARDED
    const MutexLock lock(mutex_);
#endif
    ++count_;
    changed_.notify_all();
  }

  void wait_for(int count) KOLO_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    changed_.wait(lock, [this, count]() KOLO_REQUIRES(mutex_) { return count_ >= count; });
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  int count_ KOLO_GUARDED_BY(mutex_) = 0;
};

void use(Counter& counter) {
  counter.add();
  counter.wait_for(1);
}

}  // namespace kolo
