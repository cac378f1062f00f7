#include "runtime/api/check_equal.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "comm/base/check.h"
#include "comm/base/text.h"

namespace kolo {
namespace {

std::int64_t hash_of(const NamedTensor& tensor) {
  check(tensor.memory.memory != MemoryKind::kDevice,
        fmt::format("check_equal of '{}': it is in device memory; copy it to host memory first",
                    tensor.name));
  const std::string head = fmt::format("{} {}", to_string(tensor.memory.dtype), tensor.name);
  return static_cast<std::int64_t>(XXH3_64bits_withSeed(tensor.memory.data, tensor.memory.bytes(),
                                                        XXH3_64bits(head.data(), head.size())));
}

}  // namespace

void check_equal(Group& group, std::string_view name, Span<const NamedTensor> tensors) {
  std::vector<std::int64_t> hashes;
  // Two numbers per tensor, its hash and the complement of its hash. Their maxima over all ranks
  // are the greatest hash and the complement of the least hash.
  std::vector<std::int64_t> bounds;
  for (const NamedTensor& tensor : tensors) {
    hashes.push_back(hash_of(tensor));
    bounds.insert(bounds.end(), {hashes.back(), ~hashes.back()});
  }
  group.all_reduce(fmt::format("check_equal of '{}'", name), bounds, ReduceOp::kMax).wait();
  std::vector<std::string_view> differing;
  std::size_t first = 0;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (bounds[2 * i] == ~bounds[2 * i + 1]) continue;
    if (differing.empty()) first = i;
    differing.push_back(tensors[i].name);
  }
  if (differing.empty()) return;

  std::vector<std::int64_t> of_ranks(static_cast<std::size_t>(group.size()));
  group
      .all_gather(fmt::format("hashes of '{}'", name),
                  {Span<std::int64_t>(&hashes[first], 1), of_ranks})
      .wait();
  std::vector<std::size_t> others;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (of_ranks[rank] != of_ranks.front()) others.push_back(rank);
  }
  throw KoloError({.code = ErrorCode::kMismatch,
                   .bucket = std::string(name),
                   .what = fmt::format("{} {} not equal on all ranks: '{}' of rank{} {} differs "
                                       "from that of rank 0",
                                       quoted(differing), differing.size() > 1 ? "are" : "is",
                                       differing.front(), others.size() > 1 ? "s" : "",
                                       fmt::join(others, ", "))});
}

}  // namespace kolo
