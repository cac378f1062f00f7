#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "tests/integration/job_values.h"
#include "tests/support/calls/sum_rows.h"

/// Operations that move more than 4 GiB: a message, collectives on one huge buffer, and collectives
/// in which rank 0 has a huge part and every other rank a small one.
namespace kolo::test {

inline constexpr std::size_t kHugeBytes = (std::size_t{4} << 30) + 12'345;

/// Returns memory whose length it was given.
struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::uint8_t* memory) const { ::munmap(memory, bytes); }
};

/// Memory of zeros, of which pages that are only read take no room. In huge pages where the system
/// has them: most of the time of a test is the kernel's, which hands them out.
using Zeros = std::unique_ptr<std::uint8_t[], Unmap>;

inline Zeros zeros(std::size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  return Zeros(static_cast<std::uint8_t*>(memory), Unmap{bytes});
}

/// The places of a huge run of bytes that are not zero: at its ends, and around what 32 bits hold.
inline constexpr std::size_t kHugeMarks[] = {0, (std::size_t{1} << 32) - 1, std::size_t{1} << 32,
                                             kHugeBytes - 1};

inline std::uint8_t huge_mark(std::size_t place) {
  return static_cast<std::uint8_t>(place % 100 + 1);
}

inline void set_huge_marks(std::uint8_t* bytes) {
  for (const std::size_t mark : kHugeMarks) bytes[mark] = huge_mark(mark);
}

/// Checks `kHugeBytes` bytes whose marks are `factor` times those that were set, and clears them.
inline void expect_huge_marks(std::uint8_t* bytes, int factor, const std::string& what) {
  for (const std::size_t mark : kHugeMarks) {
    if (bytes[mark] != factor * huge_mark(mark)) {
      throw WrongSum(what + ": byte " + std::to_string(mark) + " is wrong");
    }
    bytes[mark] = 0;
  }
  const std::vector<std::uint8_t> block(std::size_t{1} << 20);
  for (std::size_t i = 0; i < kHugeBytes; i += block.size()) {
    if (std::memcmp(bytes + i, block.data(), std::min(block.size(), kHugeBytes - i)) != 0) {
      throw WrongSum(what + ": a byte behind " + std::to_string(i) + " is wrong");
    }
  }
}

/// Rank 0 sends the last one a message.
inline void move_huge_message(Runtime& job) {
  const int last = job.world_size() - 1;
  const Zeros bytes = zeros(kHugeBytes);
  if (job.rank() == 0) {
    set_huge_marks(bytes.get());
    job.send({bytes.get(), kHugeBytes, DType::kUInt8}, last).wait();
  }
  if (job.rank() == last) {
    const Received got = job.recv({bytes.get(), kHugeBytes, DType::kUInt8}, 0).received();
    if (got.count != kHugeBytes) throw WrongSum("the message has another length");
    expect_huge_marks(bytes.get(), 1, "the message");
  }
}

inline BufferView huge_view(const Zeros& memory) {
  return {memory.get(), kHugeBytes, DType::kUInt8};
}

/// In place. All ranks have the marks.
inline void all_reduce_huge(Runtime& job) {
  const Zeros bytes = zeros(kHugeBytes);
  set_huge_marks(bytes.get());
  job.all_reduce("summed", huge_view(bytes)).wait();
  expect_huge_marks(bytes.get(), job.world_size(), "all_reduce");
}

/// The same on the last rank.
inline void reduce_huge(Runtime& job) {
  const int last = job.world_size() - 1;
  const Zeros bytes = zeros(kHugeBytes);
  set_huge_marks(bytes.get());
  job.reduce("summed", huge_view(bytes), last).wait();
  expect_huge_marks(bytes.get(), job.rank() == last ? job.world_size() : 1, "reduce");
}

inline void broadcast_huge(Runtime& job) {
  const Zeros bytes = zeros(kHugeBytes);
  if (job.rank() == 0) set_huge_marks(bytes.get());
  job.broadcast("copied", huge_view(bytes), 0).wait();
  expect_huge_marks(bytes.get(), 1, "broadcast");
}

/// Rank 0 has the rows of a table that hold the marks; all get the table.
inline void sum_huge_table(Runtime& job) {
  constexpr std::size_t kWidth = 4096;
  const RowTable table{.height = kHugeBytes / kWidth + 1, .width = kWidth, .dtype = DType::kUInt8};
  std::vector<std::int64_t> indices;
  std::vector<std::uint8_t> rows;
  for (const std::size_t mark : kHugeMarks) {
    if (job.rank() != 0) break;
    indices.push_back(static_cast<std::int64_t>(mark / kWidth));
    rows.resize(rows.size() + kWidth);
    rows[rows.size() - kWidth + mark % kWidth] = huge_mark(mark);
  }
  RowSums sums;
  sum_rows(job, "table", table, indices, rows.data(), sums, {.exchange = RowForm::kTable});
  expect_huge_marks(static_cast<std::uint8_t*>(sums.rows().data), 1, "sparse_all_reduce");
}

/// The parts of all ranks, of which that of rank 0 is huge. Each other part holds the rank.
class HugeParts {
 public:
  static constexpr std::size_t kSmallBytes = 1001;

  explicit HugeParts(Runtime& job) : job_(job), counts_(ranks(), kSmallBytes) {
    counts_[0] = kHugeBytes;
  }

  /// In place. Every rank but rank 0 receives the huge part.
  void all_gather() const {
    const Zeros all = zeros(total());
    write(all.get(), job_.rank());
    job_.all_gather("gathered", {view(all, total()), counts_}).wait();
    for (int rank = 1; rank < job_.world_size(); ++rank) expect_small(at(all, rank), rank);
    expect_huge_marks(all.get(), 1, "all_gather");
  }

  /// In place. Rank 0 sums the huge parts of all.
  void reduce_scatter() const {
    const Zeros all = zeros(total());
    for (int rank = 0; rank < job_.world_size(); ++rank) write(all.get(), rank);
    job_.reduce_scatter("summed", {view(all, total()), counts_}).wait();
    if (job_.rank() == 0) return expect_huge_marks(all.get(), job_.world_size(), "reduce_scatter");
    expect_small(at(all, job_.rank()), job_.rank() * job_.world_size());
  }

  /// The last rank gets the parts of all.
  void gather() const {
    const int last = job_.world_size() - 1;
    const std::size_t mine = job_.rank() == 0 ? kHugeBytes : kSmallBytes;
    const Zeros part = zeros(mine), all = zeros(job_.rank() == last ? total() : 1);
    if (job_.rank() == 0) set_huge_marks(part.get());
    std::memset(part.get(), job_.rank(), job_.rank() == 0 ? 0 : mine);
    job_.gather("gathered", {view(part, mine), of_all(all, last), counts_}, last).wait();
    if (job_.rank() != last) return;
    for (int rank = 1; rank < job_.world_size(); ++rank) expect_small(at(all, rank), rank);
    expect_huge_marks(all.get(), 1, "gather");
  }

  /// The last rank has the parts of all.
  void scatter() const {
    const int last = job_.world_size() - 1;
    const std::size_t mine = job_.rank() == 0 ? kHugeBytes : kSmallBytes;
    const Zeros part = zeros(mine), all = zeros(job_.rank() == last ? total() : 1);
    for (int rank = 0; job_.rank() == last && rank < job_.world_size(); ++rank) {
      write(all.get(), rank);
    }
    job_.scatter("scattered", {of_all(all, last), view(part, mine), counts_}, last).wait();
    if (job_.rank() == 0) return expect_huge_marks(part.get(), 1, "scatter");
    expect_small(part.get(), job_.rank());
  }

  /// Rank 0 has a huge part for the last rank; all other pairs have small ones.
  void all_to_all() const {
    const int last = job_.world_size() - 1;
    std::vector<std::size_t> counts(ranks() * ranks(), kSmallBytes);
    counts[static_cast<std::size_t>(last)] = kHugeBytes;
    const std::size_t small = (ranks() - 1) * kSmallBytes;
    const std::size_t sent = small + (job_.rank() == 0 ? kHugeBytes : kSmallBytes);
    const std::size_t received = small + (job_.rank() == last ? kHugeBytes : kSmallBytes);
    const Zeros input = zeros(sent), result = zeros(received);
    // The huge part is the last one of rank 0, and the first one of the last rank.
    std::memset(input.get(), job_.rank() + 1, job_.rank() == 0 ? small : sent);
    if (job_.rank() == 0) set_huge_marks(input.get() + small);
    job_.all_to_all("exchanged", {view(input, sent), view(result, received), counts}).wait();
    std::uint8_t* part = result.get();
    for (int rank = 0; rank < job_.world_size(); ++rank) {
      const bool is_huge = rank == 0 && job_.rank() == last;
      if (is_huge) {
        expect_huge_marks(part, 1, "all_to_all");
      } else {
        expect_small(part, rank + 1);
      }
      part += is_huge ? kHugeBytes : kSmallBytes;
    }
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(job_.world_size()); }
  std::size_t total() const { return kHugeBytes + (ranks() - 1) * kSmallBytes; }

  /// The parts of all at the root, else nothing.
  BufferView of_all(const Zeros& all, int root) const {
    return job_.rank() == root ? view(all, total()) : BufferView();
  }
  static BufferView view(const Zeros& memory, std::size_t count) {
    return {memory.get(), count, DType::kUInt8};
  }
  /// The part of a rank but rank 0.
  static std::uint8_t* at(const Zeros& all, int rank) {
    return all.get() + kHugeBytes + static_cast<std::size_t>(rank - 1) * kSmallBytes;
  }
  static void write(std::uint8_t* all, int rank) {
    if (rank == 0) return set_huge_marks(all);
    std::memset(all + kHugeBytes + static_cast<std::size_t>(rank - 1) * kSmallBytes, rank,
                kSmallBytes);
  }
  static void expect_small(const std::uint8_t* part, int value) {
    const bool is_right =
        std::all_of(part, part + kSmallBytes, [value](std::uint8_t byte) { return byte == value; });
    if (!is_right) throw WrongSum("a small part beside the huge one is wrong");
  }

  Runtime& job_;
  std::vector<std::size_t> counts_;
};

/// The operation of this name. Errors: invalid_argument for another name.
inline void move_huge(Runtime& job, const std::string& call) {
  const HugeParts parts(job);
  const std::map<std::string, std::function<void()>> calls = {
      {"message", [&] { move_huge_message(job); }},
      {"all_reduce", [&] { all_reduce_huge(job); }},
      {"reduce", [&] { reduce_huge(job); }},
      {"broadcast", [&] { broadcast_huge(job); }},
      {"table", [&] { sum_huge_table(job); }},
      {"all_gather", [&] { parts.all_gather(); }},
      {"reduce_scatter", [&] { parts.reduce_scatter(); }},
      {"gather", [&] { parts.gather(); }},
      {"scatter", [&] { parts.scatter(); }},
      {"all_to_all", [&] { parts.all_to_all(); }},
  };
  const auto found = calls.find(call);
  if (found == calls.end()) throw std::invalid_argument("no huge '" + call + "'");
  found->second();
}

}  // namespace kolo::test
