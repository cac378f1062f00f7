#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "comm/base/buffer_view.h"
#include "comm/coordinator/frame.h"
#include "comm/message/message.h"

namespace kolo {

// The tensors of a message, whose elements travel as one run of bytes, tensor behind tensor. Pure.

/// Describes the tensors of a message in its offer.
void describe_in(Offer& offer, std::span<const BufferView> tensors);
/// Bytes of all elements; empty if no memory holds as many.
std::optional<std::size_t> bytes_of(const Offer& offer);
/// Elements of all tensors.
std::size_t count_of(const Offer& offer);

/// Whether a receive has room for what is offered: one tensor of the same dtype that is as long or
/// longer, or several tensors that are the same, one by one.
bool fits(const Offer& offer, const Message& receive);
/// "10 elements of float32", or "float32 [10] + int64 [5]".
std::string describe_tensors(const Offer& offer);
/// Why a receive does not fit: "which receives int64", "whose buffer holds 9", "which receives
/// float32 [10] + int64 [4]".
std::string describe_misfit(const Offer& offer, const Message& receive);

/// The memory of all tensors, if they lie one behind another.
std::optional<std::span<std::byte>> in_one_piece(std::span<const BufferView> tensors);
/// Copies the elements to `bytes`, which has room for all.
void pack(std::span<const BufferView> tensors, std::byte* bytes);
/// Copies them from there, as many as came.
void unpack(std::span<const std::byte> bytes, std::span<const BufferView> tensors);

}  // namespace kolo
