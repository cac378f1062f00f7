#include "comm/collective/registry.h"

#include <algorithm>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/nearest_name.h"

namespace kolo {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kHierarchical = "hierarchical";

#define KOLO_ADDRESS(name) &algorithms::name,
constexpr const AlgorithmEntry* kEntries[] = {KOLO_ALGORITHMS(KOLO_ADDRESS)};
#undef KOLO_ADDRESS

const AlgorithmEntry* find(std::string_view name) {
  const auto it = std::ranges::find(kEntries, name, &AlgorithmEntry::name);
  return it == std::end(kEntries) ? nullptr : *it;
}

template <typename Predicate>
std::vector<std::string> names_of(Predicate has) {
  std::vector<std::string> names;
  for (const AlgorithmEntry* entry : kEntries) {
    if (has(*entry)) names.emplace_back(entry->name);
  }
  return names;
}

bool is_local(const AlgorithmEntry& entry) { return entry.halves != nullptr; }
bool is_cross(const AlgorithmEntry& entry) { return entry.exchange != nullptr; }

/// The entry for one place of a hierarchy.
template <typename Predicate>
const AlgorithmEntry* find_part(std::string_view place, std::string_view name,
                                std::string_view hierarchy, Predicate fits) {
  const AlgorithmEntry* entry = find(name);
  if (entry != nullptr && fits(*entry)) return entry;
  throw UsageError(
      fmt::format("{} of '{}': {}", place, hierarchy, describe_unknown(name, names_of(fits))));
}

}  // namespace

std::span<const AlgorithmEntry* const> algorithm_entries() { return kEntries; }

Algorithm::Algorithm(Hierarchy hierarchy) : form_(hierarchy) {
  ensure(is_local(*hierarchy.local) && is_cross(*hierarchy.cross), "not a hierarchy");
}

Algorithm Algorithm::parse(std::string_view text) {
  if (!text.starts_with(kHierarchical)) {
    const AlgorithmEntry* entry = find(text);
    check(entry != nullptr, "algorithm " + describe_unknown(text, algorithm_texts()));
    return Algorithm(*entry);
  }
  const std::string_view parts = text.substr(kHierarchical.size());
  const std::size_t comma = parts.find(',');
  if (!parts.starts_with(':') || comma == std::string_view::npos) {
    throw UsageError(
        fmt::format("algorithm '{}' is not of the form hierarchical:LOCAL,CROSS", text));
  }
  return Algorithm(
      Hierarchy{.local = find_part("LOCAL", parts.substr(1, comma - 1), text, is_local),
                .cross = find_part("CROSS", parts.substr(comma + 1), text, is_cross)});
}

std::string Algorithm::to_string() const {
  if (flat() != nullptr) return std::string(flat()->name);
  return fmt::format("{}:{},{}", kHierarchical, hierarchy()->local->name, hierarchy()->cross->name);
}

const AlgorithmEntry* Algorithm::flat() const {
  const auto* const* entry = std::get_if<const AlgorithmEntry*>(&form_);
  return entry == nullptr ? nullptr : *entry;
}

const AlgorithmEntry& Algorithm::between_nodes() const {
  return flat() != nullptr ? *flat() : *hierarchy()->cross;
}

bool Algorithm::takes(MemoryKind memory) const {
  if (flat() != nullptr) return flat()->memories.has(memory);
  return hierarchy()->local->halves->memories().has(memory) &&
         hierarchy()->cross->memories.has(memory);
}

bool Algorithm::sums_in_one_place() const {
  if (flat() != nullptr) return flat()->sums_in_one_place;
  return hierarchy()->local->sums_in_one_place && hierarchy()->cross->sums_in_one_place;
}

std::vector<Algorithm> algorithms_for(MemoryKind memory) {
  std::vector<Algorithm> all;
  for (const AlgorithmEntry* entry : kEntries) all.emplace_back(*entry);
  for (const AlgorithmEntry* local : kEntries) {
    for (const AlgorithmEntry* cross : kEntries) {
      if (is_local(*local) && is_cross(*cross)) all.emplace_back(Hierarchy{local, cross});
    }
  }
  std::erase_if(all, [&](const Algorithm& each) { return !each.takes(memory); });
  return all;
}

std::vector<Algorithm> hierarchies_for(MemoryKind memory) {
  std::vector<Algorithm> all = algorithms_for(memory);
  std::erase_if(all, [](const Algorithm& each) { return each.hierarchy() == nullptr; });
  const AlgorithmEntry* const local = all.front().hierarchy()->local;
  std::erase_if(all, [&](const Algorithm& each) { return each.hierarchy()->local != local; });
  return all;
}

AlgorithmRequest::AlgorithmRequest(std::string_view text) : any_hierarchy_(text == kHierarchical) {
  if (text != kAuto && text != kHierarchical) algorithm_ = Algorithm::parse(text);
}

std::vector<std::string> algorithm_texts() {
  std::vector<std::string> texts{std::string(kAuto)};
  for (const AlgorithmEntry* entry : kEntries) texts.emplace_back(entry->name);
  texts.emplace_back(kHierarchical);
  texts.push_back(fmt::format("{}:LOCAL,CROSS", kHierarchical));
  return texts;
}

}  // namespace kolo
