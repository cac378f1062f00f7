#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "comm/base/buffer_view.h"
#include "comm/device/device.h"
#include "runtime/kolo.h"

namespace kolo::bench {

/// What one row measures.
struct AllReduceCase {
  std::size_t bytes = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::optional<DType> wire = std::nullopt;
  bool in_arena = true;  ///< Kolo: the buffer lives in the arena; else in memory of its own.
  MemoryKind memory = MemoryKind::kHost;

  std::size_t count() const { return bytes / size_of(dtype); }
};

/// One system's all-reduce of one case, in place: made once, run many times.
class AllReduceRun {
 public:
  virtual ~AllReduceRun() = default;
  /// Copies `count()` elements of the case to the buffer, wherever it is, or from it.
  virtual void write(const void* elements) = 0;
  virtual void read(void* elements) = 0;
  /// Blocks until the sum is in the buffer.
  virtual void run() = 0;
  virtual std::string algorithm() const = 0;
};

/// A system under measurement.
class AllReduceSystem {
 public:
  virtual ~AllReduceSystem() = default;
  virtual std::string name() const = 0;
  virtual std::unique_ptr<AllReduceRun> prepare(const AllReduceCase& what) = 0;
  /// Payload bytes sent to other nodes so far, if the system counts them.
  virtual std::optional<std::uint64_t> wire_bytes() const { return std::nullopt; }
};

/// `device` is the runtime's, for cases in device memory, and outlives the system; else null.
std::unique_ptr<AllReduceSystem> make_kolo_system(Runtime& runtime, Device* device);

}  // namespace kolo::bench
