#include "compression/index_codec.h"

#include <algorithm>
#include <cstring>

#include "comm/base/check.h"

namespace kolo {
namespace {

std::size_t pages_of(std::size_t domain) { return (domain + kIndexPage - 1) / kIndexPage; }

template <typename T>
void put(std::span<std::byte> out, std::size_t i, T value) {
  std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
T get(std::span<const std::byte> in, std::size_t i) {
  T value;
  std::memcpy(&value, in.data() + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

IndexCoding smaller_coding(std::size_t domain, std::size_t count) {
  return index_bytes(IndexCoding::kU16Pages, domain, count) <
                 index_bytes(IndexCoding::kU32, domain, count)
             ? IndexCoding::kU16Pages
             : IndexCoding::kU32;
}

std::size_t index_bytes(IndexCoding coding, std::size_t domain, std::size_t count) {
  if (coding == IndexCoding::kU32) return count * sizeof(std::uint32_t);
  return pages_of(domain) * sizeof(std::uint32_t) + count * sizeof(std::uint16_t);
}

void encode_indices(IndexCoding coding, std::size_t domain, std::span<const std::uint32_t> indices,
                    std::span<std::byte> out) {
  check(out.size() == index_bytes(coding, domain, indices.size()),
        "encoded indices have another size");
  if (coding == IndexCoding::kU32) {
    if (!indices.empty()) std::memcpy(out.data(), indices.data(), out.size());
    return;
  }
  const std::span<std::byte> low_halves = out.subspan(pages_of(domain) * sizeof(std::uint32_t));
  std::size_t i = 0;
  for (std::size_t page = 0; page < pages_of(domain); ++page) {
    const std::size_t first = i;
    for (; i < indices.size() && indices[i] / kIndexPage == page; ++i) {
      put(low_halves, i, static_cast<std::uint16_t>(indices[i]));
    }
    put(out, page, static_cast<std::uint32_t>(i - first));
  }
  check(i == indices.size(), "indices ascend and are below their domain");
}

void decode_indices(IndexCoding coding, std::size_t domain, std::span<const std::byte> in,
                    std::span<std::uint32_t> indices) {
  ensure(in.size() == index_bytes(coding, domain, indices.size()),
         "encoded indices have another size");
  if (coding == IndexCoding::kU32) {
    if (!indices.empty()) std::memcpy(indices.data(), in.data(), in.size());
  } else {
    const std::span<const std::byte> low_halves =
        in.subspan(pages_of(domain) * sizeof(std::uint32_t));
    std::size_t i = 0;
    for (std::size_t page = 0; page < pages_of(domain); ++page) {
      const std::size_t count = get<std::uint32_t>(in, page);
      ensure(count <= indices.size() - i, "pages of indices hold too many");
      const auto base = static_cast<std::uint32_t>(page * kIndexPage);
      for (const std::size_t end = i + count; i < end; ++i) {
        indices[i] = base + get<std::uint16_t>(low_halves, i);
      }
    }
    ensure(i == indices.size(), "pages of indices hold too few");
  }
  ensure(std::ranges::all_of(indices, [&](std::uint32_t index) { return index < domain; }),
         "an index is not below its domain");
}

}  // namespace kolo
