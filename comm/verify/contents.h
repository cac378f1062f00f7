#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kolo {

/// An element as the verifier sees it: how often each rank's contribution is in it, and how often
/// it was scaled. An empty count list means that it was never written.
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

/// The sum of `a` and `b`, which are equally long, element by element. It counts as never written
/// where one of them is, or where they belong to different elements.
SymbolicRuns combine(const SymbolicRuns& a, const SymbolicRuns& b);

/// Whether `a` and `b`, which are equally long, are the same elements with the same values.
bool is_same(const SymbolicRuns& a, const SymbolicRuns& b);

/// A value for every element of one region of memory. Threads: one.
class Contents {
 public:
  /// Everything is `initial`, each element in its place.
  explicit Contents(SymbolicValue initial = {});

  SymbolicRuns read(std::size_t offset, std::size_t count) const;
  void write(std::size_t offset, const SymbolicRuns& values);

 private:
  struct Start {
    SymbolicValue value;
    std::size_t element;
  };

  void split(std::size_t at);

  std::map<std::size_t, Start> runs_;  // where a run begins -> what it holds up to the next key
};

}  // namespace kolo
