#pragma once

#include <cstddef>
#include <span>

#include "comm/schedule/codec.h"

namespace kolo {

/// Several payloads as one message: the bytes in use in each, one after the other, behind the
/// length of all.
///
///     | used bytes of the whole | payload 0 | payload 1 | ...          each to a multiple of 8
///
/// Threads: pure; any.

/// The bytes of a joined payload: the header and, for each part, `joined_bytes` of its capacity.
inline constexpr std::size_t kJoinedHeaderBytes = 8;
std::size_t joined_bytes(std::size_t part_capacity);

/// Before: `whole` has kJoinedHeaderBytes and the `joined_bytes` of every part.
void join_payloads(Payloads parts, std::span<std::byte> whole);
/// The reverse. Errors: KoloError(kInternal) unless `whole` consists of as many payloads, none
/// larger than planned.
void part_payloads(std::span<const std::byte> whole, Payloads parts);

}  // namespace kolo
