#include "comm/algorithms/algorithm_request.h"

#include <algorithm>

#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/registry.h"
#include "comm/base/check.h"
#include "comm/base/nearest_name.h"

namespace kolo {
namespace {

constexpr std::string_view kAuto = "auto";

bool is_name(std::string_view name) {
  return name == kAuto || name == kHierarchical ||
         std::ranges::any_of(all_algorithms(),
                             [&](const auto* each) { return each->name() == name; });
}

}  // namespace

AlgorithmRequest::AlgorithmRequest(std::string_view text) {
  if (text == kAuto) return;
  for (bool is_last = false; !is_last;) {
    const std::size_t end = text.find(';');
    is_last = end == std::string_view::npos;
    std::string_view name = text.substr(0, end);
    Clause clause;
    if (const std::size_t colon = name.find(':');
        colon != std::string_view::npos && !name.starts_with(kHierarchical)) {
      clause.kind = parse_collective_kind(name.substr(0, colon));
      name = name.substr(colon + 1);
    }
    if (!is_name(name)) check_hierarchy(name);
    check(is_name(name), "algorithm " + describe_unknown(name, algorithm_texts()));
    clause.name = name;
    clauses_.push_back(std::move(clause));
    if (!is_last) text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> AlgorithmRequest::names_for(CollectiveKind kind) const {
  std::vector<std::string_view> names;
  for (const bool for_all : {false, true}) {
    for (const Clause& clause : clauses_) {
      const bool is_meant = for_all ? !clause.kind.has_value() : clause.kind == kind;
      if (is_meant && clause.name == kAuto) return names;
      if (is_meant) names.emplace_back(clause.name);
    }
  }
  return names;
}

AlgorithmRequest AlgorithmRequest::with(CollectiveKind kind, std::string_view name) const {
  AlgorithmRequest request = *this;
  request.clauses_.insert(request.clauses_.begin(), {.kind = kind, .name = std::string(name)});
  return request;
}

}  // namespace kolo
