#include "tests/support/cuda_emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KOLO_ADDRESS_SANITIZER 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define KOLO_ADDRESS_SANITIZER 1
#endif
#if defined(KOLO_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace kolo::emulator {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;  // unused pages cost nothing

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Fiber::Fiber() {
  const std::size_t guard = page_bytes();
  void* const memory = mmap(nullptr, guard + kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  memory_ = static_cast<std::byte*>(memory);
  mprotect(memory_, guard, PROT_NONE);  // stacks grow down to this guard page
  inside_.stack = memory_ + guard;
  inside_.bytes = kStackBytes;
#if defined(KOLO_ADDRESS_SANITIZER)
  __asan_unpoison_memory_region(inside_.stack, inside_.bytes);
#endif
  getcontext(&inside_.context);
  inside_.context.uc_stack.ss_sp = memory_ + guard;
  inside_.context.uc_stack.ss_size = kStackBytes;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&inside_.context, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
}

Fiber::~Fiber() { munmap(memory_, page_bytes() + kStackBytes); }

void Fiber::start(std::function<void()> body) {
  body_ = std::move(body);
  resume();
}

void Fiber::resume() {
  change(outside_, inside_);
  arrive(outside_, nullptr);
}

void Fiber::suspend() {
  change(inside_, outside_);
  arrive(inside_, &outside_);
}

void Fiber::enter(unsigned high, unsigned low) {
  const std::uintptr_t self = std::uintptr_t{high} << 32 | low;
  reinterpret_cast<Fiber*>(self)->run();
}

void Fiber::run() {
  arrive(inside_, &outside_);
  for (;;) {
    body_();
    suspend();
  }
}

void Fiber::change(Side& from, Side& to) {
#if defined(KOLO_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.bytes);
#endif
  swapcontext(&from.context, &to.context);
}

void Fiber::arrive([[maybe_unused]] Side& at, [[maybe_unused]] Side* from) {
#if defined(KOLO_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(at.fake_stack, from ? &from->stack : nullptr,
                                  from ? &from->bytes : nullptr);
#endif
}

}  // namespace kolo::emulator
