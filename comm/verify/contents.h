#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kolo {

/// The verifier's view of an element: how often it contains each rank's contribution, and how often
/// it was scaled. An empty list of counts means that it was never written.
struct SymbolicValue {
  std::vector<std::uint16_t> counts = {};
  std::uint32_t finishes = 0;

  bool written() const { return !counts.empty(); }
  friend bool operator==(const SymbolicValue&, const SymbolicValue&) = default;
};

/// The contribution of `rank`, one of `ranks`.
SymbolicValue contribution_of(std::size_t rank, std::size_t ranks);

/// "1x rank 0 2x rank 3".
std::string describe(const SymbolicValue& value);

/// `count` elements of equal value that belong at `element` and the following places of the bucket,
/// wherever they are stored now.
struct SymbolicRun {
  std::size_t count = 0;
  SymbolicValue value = {};
  std::size_t element = 0;
};
using SymbolicRuns = std::vector<SymbolicRun>;

/// The element-wise sum of `a` and `b`, which have equal lengths. An element counts as never
/// written if either operand is, or if the operands belong to different elements.
SymbolicRuns combine(const SymbolicRuns& a, const SymbolicRuns& b);

/// Whether `a` and `b`, which have equal lengths, are the same elements with the same values.
bool is_same(const SymbolicRuns& a, const SymbolicRuns& b);

/// A value for every element of one region of memory. Threads: one.
class Contents {
 public:
  /// Every element starts as `initial`, in its own place.
  explicit Contents(SymbolicValue initial = {});

  SymbolicRuns read(std::size_t offset, std::size_t count) const;
  void write(std::size_t offset, const SymbolicRuns& values);

 private:
  struct Start {
    SymbolicValue value;
    std::size_t element;
  };

  void split(std::size_t at);

  std::map<std::size_t, Start> runs_;  // beginning of a run -> its contents, up to the next key
};

}  // namespace kolo
