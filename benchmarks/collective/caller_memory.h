#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "benchmarks/collective/collective_system.h"
#include "comm/device/device.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Allocates one kind of memory for the tensors of cases, and copies to, from and within it.
class Place {
 public:
  virtual ~Place() = default;
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// `put` copies from ordinary host memory to this memory, and `get` copies back. Both block until
  /// the copy is complete.
  virtual void put(void* to, const void* elements, std::size_t bytes) = 0;
  virtual void get(void* elements, const void* from, std::size_t bytes) = 0;
  /// Copies within this memory. In device memory, it only enqueues the copy on `stream`.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual std::optional<NativeStream> stream() const { return std::nullopt; }
};

/// Returns a place in private host memory of this process.
std::shared_ptr<Place> host_place();
/// Returns a place in memory that `runtime` allocates and that all ranks of the node have mapped.
std::shared_ptr<Place> arena_place(Runtime& runtime);
/// Returns a place in the memory of `device`, which must outlive the place.
std::shared_ptr<Place> device_place(Device& device);
/// Returns the place for `home`. Before: the runtime has a device if `home` is in device memory.
std::shared_ptr<Place> place_of(Runtime& runtime, Home home);

/// The buffers that a rank passes to a call: one if the call is in place, otherwise two.
class CallerMemory {
 public:
  /// `counts` are the element counts and in-place offsets of this rank. `least_bytes`: minimum size
  /// of the result's buffer, in bytes.
  CallerMemory(const CollectiveCase& what, const CaseCounts& counts,
               std::shared_ptr<Place> place = host_place(), std::size_t least_bytes = 0);

  bool in_place() const { return in_place_; }
  /// In place, the contribution and `result` are parts of the same buffer.
  void* contribution() const { return at(contribution_, contributed_at_); }
  /// Out of place, this is null on a rank that receives nothing.
  void* result() const { return at(result_, received_at_); }
  std::size_t contribution_bytes() const { return contributed_; }

  void write(const void* elements) { place_->put(contribution(), elements, contributed_); }
  void read(void* elements) const { place_->get(elements, result(), received_); }
  /// Overwrites the result with bytes that no case contributes.
  void forget();
  void read_contribution(void* elements) const {
    place_->get(elements, contribution(), contributed_);
  }
  /// Copies the contribution to the result's buffer, for a system that only works in place.
  void copy_contribution() {
    if (!in_place()) place_->copy(result(), contribution(), contributed_);
  }

 private:
  static void* at(const std::shared_ptr<void>& memory, std::size_t bytes) {
    return memory == nullptr ? nullptr : static_cast<std::byte*>(memory.get()) + bytes;
  }

  std::shared_ptr<Place> place_;
  bool in_place_;
  std::size_t contributed_, received_;        // sizes in bytes
  std::size_t contributed_at_, received_at_;  // offsets in bytes
  std::shared_ptr<void> result_, contribution_;
};

/// A run whose buffers are `CallerMemory`.
class MemoryRun : public CollectiveRun {
 public:
  MemoryRun(CallerMemory memory, std::string algorithm)
      : memory_(std::move(memory)), algorithm_(std::move(algorithm)) {}

  void write(const void* elements) override { memory_.write(elements); }
  void read(void* elements) override { memory_.read(elements); }
  void forget() override { memory_.forget(); }
  void read_contribution(void* elements) override { memory_.read_contribution(elements); }
  std::string algorithm() const override { return algorithm_; }

 protected:
  CallerMemory memory_;

 private:
  std::string algorithm_;
};

}  // namespace kolo::bench
