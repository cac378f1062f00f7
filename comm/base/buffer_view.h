#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>

#include "comm/base/dtype.h"
#include "comm/base/element.h"
#include "comm/base/span.h"

namespace kolo {

/// Kinds of memory.
enum class MemoryKind : std::uint8_t {
  kHost,    ///< Ordinary (pageable) host memory. Kolo does not copy it to or from a device.
  kPinned,  ///< Host memory that a device can read and write directly.
  kDevice,  ///< Device memory. The processor must not access it.
};

/// Returns "host", "pinned" or "device".
constexpr std::string_view to_string(MemoryKind kind) {
  constexpr std::string_view kNames[] = {"host", "pinned", "device"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// A typed view of contiguous memory, which it does not own. The dtype follows from the type of the
/// pointer. For types that Kolo does not know, it must be passed explicitly.
struct BufferView {
  /// An empty view.
  constexpr BufferView() = default;
  template <typename T, std::enable_if_t<kIsElement<T>, int> = 0>
  constexpr BufferView(T* elements, std::size_t number, MemoryKind kind = MemoryKind::kHost)
      : data(elements), count(number), dtype(*kDTypeOf<T>), memory(kind) {}
  constexpr BufferView(void* elements, std::size_t number, DType type,
                       MemoryKind kind = MemoryKind::kHost)
      : data(elements), count(number), dtype(type), memory(kind) {}
  /// Views all elements of a vector, an array or a span in host memory.
  template <typename Range, std::enable_if_t<kIsElements<Range>, int> = 0>
  constexpr BufferView(Range&& elements)  // NOLINT(*-explicit-*): it is the same memory.
      : BufferView(std::data(elements), std::size(elements)) {}

  void* data = nullptr;                   ///< The first element.
  std::size_t count = 0;                  ///< Number of elements.
  DType dtype = DType::kFloat32;          ///< Element type.
  MemoryKind memory = MemoryKind::kHost;  ///< Kind of the memory.

  /// Size in bytes.
  std::size_t bytes() const { return count * size_of(dtype); }
  /// The same memory as bytes.
  Span<std::byte> as_bytes() const { return {static_cast<std::byte*>(data), bytes()}; }
};

/// A view of memory that is only read.
struct ConstBuffer {
  /// An empty view.
  constexpr ConstBuffer() = default;
  template <typename T, std::enable_if_t<kIsElement<std::remove_const_t<T>>, int> = 0>
  constexpr ConstBuffer(T* elements, std::size_t number, MemoryKind kind = MemoryKind::kHost)
      : data(elements), count(number), dtype(*kDTypeOf<std::remove_const_t<T>>), memory(kind) {}
  constexpr ConstBuffer(const void* elements, std::size_t number, DType type,
                        MemoryKind kind = MemoryKind::kHost)
      : data(elements), count(number), dtype(type), memory(kind) {}
  constexpr ConstBuffer(const BufferView& view)  // NOLINT(*-explicit-*): it is the same memory.
      : data(view.data), count(view.count), dtype(view.dtype), memory(view.memory) {}
  /// Views all elements of a vector, an array or a span in host memory.
  template <typename Range, std::enable_if_t<kIsElement<std::remove_const_t<ElementOf<Range>>> &&
                                                 kIsViewableAs<Range, const ElementOf<Range>>,
                                             int> = 0>
  constexpr ConstBuffer(Range&& elements)  // NOLINT(*-explicit-*): it is the same memory.
      : ConstBuffer(std::data(elements), std::size(elements)) {}

  const void* data = nullptr;             ///< The first element.
  std::size_t count = 0;                  ///< Number of elements.
  DType dtype = DType::kFloat32;          ///< Element type.
  MemoryKind memory = MemoryKind::kHost;  ///< Kind of the memory.

  /// Size in bytes.
  std::size_t bytes() const { return count * size_of(dtype); }
};

/// Numbers of elements of the parts of a tensor, by rank. For an all-to-all: by sender, and for
/// each sender by receiver. All ranks must pass equal values. If empty, all parts have the same
/// size.
using PartCounts = Span<const std::size_t>;

/// One tensor of an operation. It has one buffer that is used in place, or an input and a result
/// that do not overlap. A rank passes an empty buffer if it gives no input or gets no result.
struct Tensor {
  Tensor() = default;
  /// An in-place tensor: the buffer first holds the input, then the result. Its size is that of the
  /// longer of the two.
  Tensor(const BufferView& in_place, PartCounts part_counts = {})
      : result(in_place), counts(part_counts), is_in_place(true) {}
  template <typename Range, std::enable_if_t<kIsElements<Range>, int> = 0>
  Tensor(Range&& in_place, PartCounts part_counts = {})
      : Tensor(BufferView(std::forward<Range>(in_place)), part_counts) {}
  Tensor(const ConstBuffer& given, const BufferView& taken, PartCounts part_counts = {})
      : input(given), result(taken), counts(part_counts) {}

  ConstBuffer input = {};  ///< The input, which is only read. Unused if `is_in_place`.
  BufferView result = {};
  PartCounts counts = {};
  bool is_in_place = false;  ///< Whether `result` is also the input.
};

/// The tensors of a call: one tensor or a list. All have the same dtype and kind of memory. `{x,
/// y}` is one tensor with input x and result y.
class Tensors : public OneOrMore<Tensor> {
 public:
  /// An empty list.
  Tensors() = default;
  Tensors(const Tensor& one)  // NOLINT(*-explicit-*): a list of one.
      : OneOrMore(one) {}
  template <typename List, std::enable_if_t<kIsViewableAs<List, const Tensor> &&
                                                !std::is_same_v<std::decay_t<List>, Tensors>,
                                            int> = 0>
  Tensors(List&& list)  // NOLINT(*-explicit-*): it is the same list.
      : OneOrMore(std::forward<List>(list)) {}
  template <typename Range, std::enable_if_t<kIsElements<Range>, int> = 0>
  Tensors(Range&& in_place)  // NOLINT(*-explicit-*): it is the same memory.
      : OneOrMore(Tensor(std::forward<Range>(in_place))) {}
  Tensors(const BufferView& in_place)  // NOLINT(*-explicit-*): it is the same memory.
      : OneOrMore(Tensor(in_place)) {}
  template <typename T, std::enable_if_t<kIsElement<T>, int> = 0>
  Tensors(T* in_place, std::size_t number, MemoryKind kind = MemoryKind::kHost)
      : Tensors(BufferView(in_place, number, kind)) {}
  Tensors(void* in_place, std::size_t number, DType type, MemoryKind kind = MemoryKind::kHost)
      : Tensors(BufferView(in_place, number, type, kind)) {}
  /// One in-place tensor with parts of unequal sizes.
  template <typename Counts, std::enable_if_t<std::is_convertible_v<Counts&, PartCounts>, int> = 0>
  Tensors(const BufferView& in_place, const Counts& part_counts)
      : OneOrMore(Tensor(in_place, PartCounts(part_counts))) {}
  Tensors(const ConstBuffer& input, const BufferView& result, PartCounts part_counts = {})
      : OneOrMore(Tensor(input, result, part_counts)) {}
};

/// The buffers of a message: one buffer or a list. All are in the same kind of memory.
class Buffers : public OneOrMore<BufferView> {
 public:
  Buffers(const BufferView& one)  // NOLINT(*-explicit-*): a list of one.
      : OneOrMore(one) {}
  template <typename List, std::enable_if_t<kIsViewableAs<List, const BufferView> &&
                                                !std::is_same_v<std::decay_t<List>, Buffers>,
                                            int> = 0>
  Buffers(List&& list)  // NOLINT(*-explicit-*): it is the same list.
      : OneOrMore(std::forward<List>(list)) {}
  template <typename Range, std::enable_if_t<kIsElements<Range>, int> = 0>
  Buffers(Range&& one)  // NOLINT(*-explicit-*): it is the same memory.
      : OneOrMore(BufferView(std::forward<Range>(one))) {}
  template <typename T, std::enable_if_t<kIsElement<T>, int> = 0>
  Buffers(T* one, std::size_t number, MemoryKind kind = MemoryKind::kHost)
      : OneOrMore(BufferView(one, number, kind)) {}
  Buffers(void* one, std::size_t number, DType type, MemoryKind kind = MemoryKind::kHost)
      : OneOrMore(BufferView(one, number, type, kind)) {}
};

}  // namespace kolo
