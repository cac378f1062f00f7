#include "comm/verify/contents.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace kolo {
namespace {

/// The form of a value that has an operation with this operand behind it.
std::uint64_t next_form(std::uint64_t form, std::uint64_t operand) {
  const std::uint64_t mixed = (form + 1) * 0x9e3779b97f4a7c15U + operand;
  return (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9U;
}

}  // namespace

void SymbolicValue::round(std::size_t by) {
  divisor *= by;
  form = next_form(form, by);
}

SymbolicValue contribution_of(std::size_t rank, std::size_t ranks) {
  SymbolicValue own{.counts = std::vector<std::uint16_t>(ranks), .form = rank};
  own.counts[rank] = 1;
  return own;
}

std::string describe(const SymbolicValue& value) {
  if (!value.written()) return "nothing";
  std::string text;
  for (std::size_t rank = 0; rank < value.counts.size(); ++rank) {
    if (value.counts[rank] != 0) text += fmt::format(" {}x rank {}", value.counts[rank], rank);
  }
  if (value.folded) text += " folded";
  return text.empty() ? "no contribution" : text.substr(1);
}

SymbolicRuns combine(const SymbolicRuns& a, const SymbolicRuns& b) {
  SymbolicRuns result;
  std::size_t used_a = 0, used_b = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::size_t count = std::min(a[i].count - used_a, b[j].count - used_b);
    SymbolicValue sum = a[i].value;
    const std::size_t element = a[i].element + used_a;
    const bool is_alike = b[j].element + used_b == element && b[j].value.divisor == sum.divisor &&
                          b[j].value.folded == sum.folded;
    if (!b[j].value.written() || !is_alike) sum = {};
    sum.form = next_form(sum.form, b[j].value.form);
    for (std::size_t rank = 0; rank < sum.counts.size(); ++rank) {
      sum.counts[rank] = static_cast<std::uint16_t>(sum.counts[rank] + b[j].value.counts[rank]);
    }
    result.push_back({count, std::move(sum), element});
    if ((used_a += count) == a[i].count) ++i, used_a = 0;
    if ((used_b += count) == b[j].count) ++j, used_b = 0;
  }
  return result;
}

bool is_same(const SymbolicRuns& a, const SymbolicRuns& b) {
  std::size_t used_a = 0, used_b = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::size_t count = std::min(a[i].count - used_a, b[j].count - used_b);
    if (a[i].value != b[j].value || a[i].element + used_a != b[j].element + used_b) return false;
    if ((used_a += count) == a[i].count) ++i, used_a = 0;
    if ((used_b += count) == b[j].count) ++j, used_b = 0;
  }
  return true;
}

Contents::Contents(SymbolicValue initial) { runs_.emplace(0, Start{std::move(initial), 0}); }

SymbolicRuns Contents::read(std::size_t offset, std::size_t count) const {
  SymbolicRuns result;
  auto it = std::prev(runs_.upper_bound(offset));
  for (std::size_t at = offset, end = offset + count; at < end; ++it) {
    const auto next = std::next(it);
    const std::size_t stop = next == runs_.end() ? end : std::min(end, next->first);
    result.push_back({stop - at, it->second.value, it->second.element + (at - it->first)});
    at = stop;
  }
  return result;
}

void Contents::write(std::size_t offset, const SymbolicRuns& values) {
  for (const SymbolicRun& run : values) {
    split(offset);
    split(offset + run.count);
    runs_.erase(runs_.find(offset), runs_.find(offset + run.count));
    runs_.emplace(offset, Start{run.value, run.element});
    offset += run.count;
  }
}

void Contents::split(std::size_t at) {
  const auto it = std::prev(runs_.upper_bound(at));
  if (it->first == at) return;
  runs_.emplace_hint(std::next(it), at,
                     Start{it->second.value, it->second.element + (at - it->first)});
}

}  // namespace kolo
