#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace kolo::emulator {

/// A coroutine with a stack. If it is destroyed while suspended, the objects on its stack are not
/// destroyed.
///
/// Threads: one thread makes all calls. Errors: std::system_error if there is no memory for a
/// stack. A body must not throw.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs `body` until it suspends itself or returns. Called from outside the fiber. Before: the
  /// previous body, if any, has returned.
  void start(std::function<void()> body);

  /// Resumes the suspended body. Called from outside the fiber.
  void resume();

  /// Suspends the body until the next `resume`. Called from the body.
  void suspend();

 private:
  static void enter(unsigned high, unsigned low);
  void run();

  // One of the two stacks between which a fiber switches. AddressSanitizer must know their bounds.
  struct Side {
    ucontext_t context = {};
    const void* stack = nullptr;
    std::size_t bytes = 0;
    void* fake_stack = nullptr;
  };
  static void change(Side& from, Side& to);
  void arrive(Side& at, Side* from);

  std::function<void()> body_;
  std::byte* memory_ = nullptr;
  Side inside_, outside_;
};

}  // namespace kolo::emulator
