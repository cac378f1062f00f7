#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kolo {

/// The value of an element in the verifier: how often it contains each rank's contribution, and by
/// what it is divided if it is an average. An empty list of counts means that the element was never
/// written.
struct SymbolicValue {
  std::vector<std::uint16_t> counts = {};
  std::size_t divisor = 1;
  /// A hash of the sums and roundings that made the value, in their order. Values with the same
  /// counts but different forms may differ in their last bits.
  std::uint64_t form = 0;
  bool folded = false;  ///< A codec has added its residual.

  bool written() const { return !counts.empty(); }
  /// Divides the value and rounds it.
  void round(std::size_t by);
  friend bool operator==(const SymbolicValue&, const SymbolicValue&) = default;
};

/// Returns the contribution of `rank` in a job of `ranks` ranks.
SymbolicValue contribution_of(std::size_t rank, std::size_t ranks);

/// Returns a text such as "1x rank 0 2x rank 3", and " folded" if it is.
std::string describe(const SymbolicValue& value);

/// `count` elements of equal value. They are elements [element, element + count) of the bucket,
/// wherever they are stored.
struct SymbolicRun {
  std::size_t count = 0;
  SymbolicValue value = {};
  std::size_t element = 0;
};
using SymbolicRuns = std::vector<SymbolicRun>;

/// Returns the element-wise sum of `a` and `b`, which have equal lengths. An element of the sum
/// counts as never written if an operand was never written, or if the operands are different
/// elements of the bucket, have different divisors, or only one of them is folded.
SymbolicRuns combine(const SymbolicRuns& a, const SymbolicRuns& b);

/// Whether `a` and `b`, which have equal lengths, hold the same elements with the same values.
bool is_same(const SymbolicRuns& a, const SymbolicRuns& b);

/// A symbolic value for every element of one region of memory. Threads: one.
class Contents {
 public:
  /// Gives every element the value `initial`; offset i holds element i of the bucket.
  explicit Contents(SymbolicValue initial = {});

  SymbolicRuns read(std::size_t offset, std::size_t count) const;
  void write(std::size_t offset, const SymbolicRuns& values);

 private:
  struct Start {
    SymbolicValue value;
    std::size_t element;
  };

  void split(std::size_t at);

  std::map<std::size_t, Start> runs_;  // start of a run -> its contents, up to the next key
};

}  // namespace kolo
