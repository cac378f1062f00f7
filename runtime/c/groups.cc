#include <algorithm>
#include <string>

#include <kolo/kolo_c.h>

#include "runtime/c/arguments.h"
#include "runtime/c/handles.h"

using kolo::check_given;
using kolo::GroupOptions;
using kolo::guarded;
using kolo::guarded_on;

namespace {

GroupOptions options_of(const kolo_group_options* options) {
  const kolo_group_options given =
      kolo::complete(options, kolo_group_options KOLO_GROUP_OPTIONS_INIT, "options");
  return {.name = std::string(kolo::text_or_empty(given.name)),
          .arena_bytes = given.arena_bytes,
          .operation_timeout = std::chrono::milliseconds(given.operation_timeout)};
}

void check_arguments(const kolo_group* parent, kolo_group** group) {
  check_given(parent, "parent");
  check_given(group, "group");
  *group = nullptr;
}

}  // namespace

kolo_status kolo_group_create(kolo_group* parent, const int32_t* ranks, size_t num_ranks,
                              const kolo_group_options* options, kolo_group** group) {
  return guarded([&] {
    check_arguments(parent, group);
    if (num_ranks > 0) check_given(ranks, "ranks");
    *group = new kolo_group(parent->group.group({ranks, ranks + num_ranks}, options_of(options)));
  });
}

kolo_status kolo_group_split(kolo_group* parent, int32_t color, int32_t key,
                             const kolo_group_options* options, kolo_group** group) {
  return guarded([&] {
    check_arguments(parent, group);
    auto own = parent->group.split(color, key, options_of(options));
    if (own) *group = new kolo_group(std::move(*own));
  });
}

kolo_status kolo_group_node(kolo_group* parent, const kolo_group_options* options,
                            kolo_group** group) {
  return guarded([&] {
    check_arguments(parent, group);
    *group = new kolo_group(parent->group.node_group(options_of(options)));
  });
}

kolo_status kolo_group_cross(kolo_group* parent, const kolo_group_options* options,
                             kolo_group** group) {
  return guarded([&] {
    check_arguments(parent, group);
    *group = new kolo_group(parent->group.cross_group(options_of(options)));
  });
}

kolo_status kolo_group_keep_order(kolo_group* group) {
  return guarded_on(group, "group", [&] { group->group.keep_order(); });
}

kolo_status kolo_group_close(kolo_group* group) {
  return guarded_on(group, "group", [&] { group->group.close(); });
}

void kolo_group_release(kolo_group* group) {
  if (group != nullptr && group->owned) delete group;
}

int32_t kolo_group_rank(const kolo_group* group) {
  return group == nullptr ? -1 : group->group.rank();
}

int32_t kolo_group_size(const kolo_group* group) {
  return group == nullptr ? 0 : group->group.size();
}

void kolo_group_ranks(const kolo_group* group, int32_t* ranks_of_job) {
  if (group == nullptr) return;
  std::ranges::copy(group->group.ranks_of_job(), ranks_of_job);
}

uint64_t kolo_network_bytes_sent(const kolo_group* group) {
  return group == nullptr ? 0 : group->group.network_bytes_sent();
}
