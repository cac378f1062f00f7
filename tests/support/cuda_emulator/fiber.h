#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace kolo::emulator {

/// A coroutine with its own stack. If it is destroyed while suspended, objects on its stack are not
/// destroyed.
///
/// Threads: all calls from one. Errors: std::system_error if there is no memory for a stack.
///          A body must not throw.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Called from outside: runs `body` until it suspends itself or returns. Before: the previous
  /// body, if any, has returned.
  void start(std::function<void()> body);

  /// Called from outside: resumes the suspended body.
  void resume();

  /// Called from the body: suspends it until the next resume.
  void suspend();

 private:
  static void enter(unsigned high, unsigned low);
  void run();

  // For AddressSanitizer, which must be told of each change of stacks.
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
