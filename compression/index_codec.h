#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo {

/// Encodings of the ascending indices of a sparse payload.
enum class IndexCoding : std::uint8_t {
  kU32,
  kU16Pages,  ///< Number of indices per page of 64 Ki (32 bits), then their 16 lower bits.
};

inline constexpr std::size_t kIndexPage = std::size_t{1} << 16;

/// The encoding that takes fewer bytes for `count` indices below `domain`.
IndexCoding smaller_coding(std::size_t domain, std::size_t count);

/// Exact number of bytes for `count` indices below `domain`.
std::size_t index_bytes(IndexCoding coding, std::size_t domain, std::size_t count);

/// Shape:   `out` has index_bytes bytes, at any alignment.
/// Before:  indices ascend and are below `domain`, which is at most 2^32.
/// Threads: pure; any.
/// Errors:  UsageError if `out` has another size.
void encode_indices(IndexCoding coding, std::size_t domain, std::span<const std::uint32_t> indices,
                    std::span<std::byte> out);

/// The inverse. Errors: KoloError(kInternal) if the pages do not hold indices.size() indices or one
/// is not below `domain`: the input is not such an encoding.
void decode_indices(IndexCoding coding, std::size_t domain, std::span<const std::byte> in,
                    std::span<std::uint32_t> indices);

}  // namespace kolo
