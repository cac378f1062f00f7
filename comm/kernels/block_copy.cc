#include "comm/kernels/simd_kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

// Sanitizers do not see the reads and writes of inline assembly.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KOLO_HAS_REP_MOVSB 1
#include <cpuid.h>
#endif

namespace kolo {

#ifdef KOLO_HAS_REP_MOVSB

namespace {

constexpr std::size_t kLine = 64;

/// Whether the processor has "enhanced" and "fast short" REP MOVSB, the features by which Linux
/// chooses its copy routines.
/// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A, CPUID, leaf 7.
bool is_advertised() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kErms = 1U << 9, kFsrm = 1U << 4;
  return (ebx & kErms) != 0 && (edx & kFsrm) != 0;
}

}  // namespace

bool has_block_copy() {
  static const bool is_fast = is_advertised();
  return is_fast;
}

void block_copy(void* dst, const void* src, std::size_t bytes) {
  // Some processors copy to misaligned lines many times more slowly.
  const std::size_t misaligned = (kLine - reinterpret_cast<std::uintptr_t>(dst) % kLine) % kLine;
  const std::size_t head = std::min(misaligned, bytes);
  std::memcpy(dst, src, head);
  auto* to = static_cast<std::byte*>(dst) + head;
  const auto* from = static_cast<const std::byte*>(src) + head;
  std::size_t left = bytes - head;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(left) : : "memory");
}

#else

bool has_block_copy() { return false; }

void block_copy(void* dst, const void* src, std::size_t bytes) { std::memcpy(dst, src, bytes); }

#endif

}  // namespace kolo
