#include "comm/algorithms/registry.h"

#include <algorithm>

#include "comm/algorithms/all_reduce/all_reduce.h"

namespace kolo {

std::span<const Algorithm* const> all_algorithms() {
  static const std::vector<const Algorithm*> all = [] {
    std::vector<const Algorithm*> list;
    for (const AllReduce& each : all_reduces()) list.push_back(&each);
#define KOLO_APPEND(name) list.push_back(&algorithms::name);
    KOLO_ALGORITHMS(KOLO_APPEND)
#undef KOLO_APPEND
    return list;
  }();
  return all;
}

std::vector<std::string> algorithm_texts() {
  std::vector<std::string> texts{"auto"};
  for (const Algorithm* each : all_algorithms()) {
    const std::string_view name = each->name();
    const bool is_new = std::ranges::find(texts, name) == texts.end();
    if (is_new && !name.starts_with(kHierarchical)) texts.emplace_back(name);
  }
  texts.emplace_back(kHierarchical);
  texts.emplace_back(kHierarchical) += ":LOCAL,CROSS";
  return texts;
}

}  // namespace kolo
