#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "comm/message/message.h"
#include "runtime/calls/operation.h"
#include "tests/support/device/device_heap.h"
#include "tests/support/device/host_device.h"
#include "tests/support/device/host_stream.h"

namespace kolo::test {

/// Calls visit(buffer, bytes, is_input) for both buffers of a tensor. The visitor may replace the
/// pointer. If one buffer contains the other, only the outer one is visited, and the inner one
/// moves with it.
template <typename Visit>
void visit_both(void*& result, std::size_t result_bytes, const void*& input,
                std::size_t input_bytes, Visit visit) {
  const auto* const own_result = static_cast<const std::byte*>(result);
  const auto* const own_input = static_cast<const std::byte*>(input);
  const std::less_equal<> before;
  const bool are_there =
      result != nullptr && input != nullptr && result_bytes > 0 && input_bytes > 0;
  const auto lies_in = [&](const std::byte* inner, std::size_t bytes, const std::byte* outer,
                           std::size_t outer_bytes) {
    return are_there && before(outer, inner) && before(inner + bytes, outer + outer_bytes);
  };
  if (lies_in(own_input, input_bytes, own_result, result_bytes)) {
    visit(result, result_bytes, false);
    input = static_cast<std::byte*>(result) + (own_input - own_result);
  } else if (lies_in(own_result, result_bytes, own_input, input_bytes)) {
    visit(input, input_bytes, true);
    result = static_cast<std::byte*>(const_cast<void*>(input)) + (own_result - own_input);
  } else {
    visit(result, result_bytes, false);
    visit(input, input_bytes, true);
  }
}

/// Calls visit(buffer, bytes, is_input) for each buffer that `rank` of `ranks` reads or writes in
/// an operation. The visitor may replace the pointer.
template <typename Visit>
void for_each_buffer(Operation& operation, int rank, int ranks, Visit visit) {
  struct Sizes {
    std::size_t result = 0, input = 0;  // bytes
  };
  std::vector<Sizes> sizes(operation.tensors.size());  // by tensor
  const CollectiveSpec spec = operation.spec(ranks);
  for (std::size_t part = 0; part < spec.size(); ++part) {
    const bool gives = spec.part(part).contributes(rank);
    const bool gets = spec.part(part).receives(rank);
    if (!gives && !gets) continue;
    for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
      const std::size_t bytes = operation.count_in(tensor, part) * size_of(operation.dtype);
      const bool is_result_read = !operation.out_of_place && !operation.sends_copy();
      if (gets || is_result_read) sizes[tensor].result += bytes;
      if (gives && operation.out_of_place) sizes[tensor].input += bytes;
    }
  }
  for (std::size_t i = 0; i < operation.tensors.size(); ++i) {
    TensorBuffers& tensor = operation.tensors[i];
    visit_both(tensor.result, sizes[i].result, tensor.input, sizes[i].input, visit);
  }
}

/// Converts operations on host memory to operations on device memory, so that a test of host memory
/// also tests device memory. A stream of the caller writes the contents to the device, after the
/// call.
///
/// Threads: one.
class MovedBuffers {
 public:
  explicit MovedBuffers(DeviceHeap& heap) : heap_(heap) {}

  /// Moves the buffers that `rank` of `ranks` uses. `stream` is the caller's stream on `device`.
  void move(Operation& operation, int rank, int ranks, SeededHostDevice& device, Stream& stream) {
    operation.memory = MemoryKind::kDevice;
    Moved moved{.is_over = [ticket = operation.ticket] { return ticket->done(); }, .buffers = {}};
    for_each_buffer(operation, rank, ranks, [&](auto*& buffer, std::size_t bytes, bool is_input) {
      if (buffer == nullptr || bytes == 0) return;
      auto* const host = static_cast<std::byte*>(const_cast<void*>(std::as_const(buffer)));
      moved.buffers.push_back(write(stream, host, bytes, is_input));
      buffer = moved.buffers.back().device;
    });
    operation.ready = after(stream, device);
    moved_.push_back(std::move(moved));
  }

  /// Moves the buffers of a message. The message is complete when `is_over` returns true.
  void move(Message& message, std::function<bool()> is_over, SeededHostDevice& device,
            Stream& stream) {
    Moved moved{.is_over = std::move(is_over), .buffers = {}};
    const auto move_buffer = [&](BufferView& buffer) {
      buffer.memory = MemoryKind::kDevice;
      if (buffer.bytes() == 0) return;
      const bool is_input = message.kind == Message::Kind::kSend;
      auto* const host = static_cast<std::byte*>(buffer.data);
      moved.buffers.push_back(write(stream, host, buffer.bytes(), is_input));
      buffer.data = moved.buffers.back().device;
    };
    move_buffer(message.buffer);
    for (BufferView& tensor : message.tensors) move_buffer(tensor);
    message.ready = after(stream, device);
    moved_.push_back(std::move(moved));
  }

  /// Copies the results of completed operations back to the original buffers. Errors:
  /// std::runtime_error if an operation changed its input.
  void finish() {
    bool is_any_left = false;
    for (Moved& moved : moved_) {
      if (!moved.is_over()) {
        is_any_left = true;
        continue;
      }
      for (const Buffer& buffer : std::exchange(moved.buffers, {})) {
        if (!buffer.is_input) {
          std::memcpy(buffer.host, buffer.device, buffer.bytes);
        } else if (std::memcmp(buffer.host, buffer.device, buffer.bytes) != 0) {
          throw std::runtime_error("an operation has changed its input in device memory");
        }
      }
    }
    if (is_any_left) return;
    moved_.clear();
    heap_.clear();
  }

 private:
  struct Buffer {
    std::byte* host = nullptr;
    std::byte* device = nullptr;
    std::size_t bytes = 0;
    bool is_input = false;
  };
  struct Moved {
    std::function<bool()> is_over;
    std::vector<Buffer> buffers;
  };

  Buffer write(Stream& stream, std::byte* host, std::size_t bytes, bool is_input) {
    std::byte* const memory = heap_.allocate(bytes);
    auto contents = std::make_shared<std::vector<std::byte>>(host, host + bytes);
    as_host(stream).enqueue([memory, contents] {
      std::memcpy(memory, contents->data(), contents->size());
      return true;
    });
    return {.host = host, .device = memory, .bytes = bytes, .is_input = is_input};
  }

  static std::shared_ptr<const Event> after(Stream& stream, SeededHostDevice& device) {
    std::shared_ptr<Event> event = device.make_event();
    stream.record(*event);
    return event;
  }

  DeviceHeap& heap_;
  std::vector<Moved> moved_;
};

}  // namespace kolo::test
