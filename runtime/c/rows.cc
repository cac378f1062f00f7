#include <set>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <kolo/kolo_c.h>

#include "runtime/c/arguments.h"
#include "runtime/c/handles.h"

using kolo::CallArguments;
using kolo::check;
using kolo::check_given;
using kolo::guarded;
using kolo::guarded_on;
using kolo::RowForm;

static_assert(KOLO_AUTO_FORM == static_cast<int>(RowForm::kAuto));
static_assert(KOLO_ROWS == static_cast<int>(RowForm::kRows));
static_assert(KOLO_TABLE == static_cast<int>(RowForm::kTable));

namespace {

RowForm form_of(kolo_row_form form) {
  check(form >= KOLO_AUTO_FORM && form <= KOLO_TABLE, fmt::format("{} is not a form", form));
  return static_cast<RowForm>(form);
}

kolo::RowOptions options_of(const kolo_row_options* options, const CallArguments& with) {
  const auto given = kolo::complete(options, kolo_row_options KOLO_ROW_OPTIONS_INIT, "options");
  check(!with.wire_dtype, "rows travel as they are, without a wire dtype");
  return {.op = kolo::op_of(given.op),
          .result = form_of(given.result),
          .exchange = form_of(given.exchange),
          .scales = with.scales};
}

kolo::Span<const int64_t> indices_of(const int64_t* indices, size_t count) {
  if (count > 0) check_given(indices, "indices");
  return {indices, count};
}

/// Checks that there are `count` results, all different.
void check_results(kolo_row_sums* const* sums, size_t count) {
  check_given(sums, "sums");
  std::set<const kolo_row_sums*> seen;
  for (size_t i = 0; i < count; ++i) {
    check_given(sums[i], "sums");
    check(seen.insert(sums[i]).second, "`sums` has one handle for two tables");
  }
}

/// Moves the caller's results into a vector for the C++ call.
std::vector<kolo::RowSums> take_from(kolo_row_sums* const* sums, size_t count) {
  std::vector<kolo::RowSums> taken;
  for (size_t i = 0; i < count; ++i) taken.push_back(std::move(sums[i]->sums));
  return taken;
}

void give_to(kolo_row_sums* const* sums, std::vector<kolo::RowSums> taken) {
  for (size_t i = 0; i < taken.size(); ++i) sums[i]->sums = std::move(taken[i]);
}

}  // namespace

kolo_status kolo_row_sums_create(kolo_row_sums** sums) {
  return guarded_on(sums, "sums", [&] { *sums = new kolo_row_sums; });
}

void kolo_row_sums_release(kolo_row_sums* sums) { delete sums; }

kolo_status kolo_sparse_all_reduce(kolo_group* group, const kolo_row_table* tables,
                                   size_t num_tables, const kolo_row_options* options,
                                   const kolo_call* call, kolo_row_sums* const* sums,
                                   kolo_ticket** ticket) {
  return guarded([&] {
    if (ticket != nullptr) *ticket = nullptr;
    check_given(group, "group");
    if (num_tables > 0) check_given(tables, "tables");
    const CallArguments with(call);
    const kolo::RowOptions how = options_of(options, with);
    std::vector<kolo::TableRows> given;
    for (const kolo_row_table& each : std::span(tables, num_tables)) {
      given.push_back({.table = {.height = each.height,
                                 .width = each.width,
                                 .dtype = kolo::dtype_of(each.dtype),
                                 .memory = kolo::memory_of(each.memory)},
                       .indices = indices_of(each.indices, each.num_indices),
                       .rows = each.rows});
    }
    if (ticket == nullptr || sums != nullptr) check_results(sums, num_tables);
    std::vector<kolo::RowSums> memory;
    if (sums != nullptr) memory = take_from(sums, num_tables);
    const auto begin = [&] {
      try {
        return group->group.sparse_all_reduce(with.name, given, how, std::move(memory),
                                              with.stream);
      } catch (...) {
        give_to(sums, std::move(memory));  // a refused call has taken nothing
        throw;
      }
    };
    kolo::Ticket begun = begin();
    if (ticket != nullptr) {
      *ticket = new kolo_ticket{.ticket = std::move(begun), .num_tables = num_tables};
    } else {
      give_to(sums, begun.sums());
    }
  });
}

kolo_status kolo_ticket_row_sums(kolo_ticket* ticket, kolo_row_sums* const* sums,
                                 size_t num_tables) {
  return guarded_on(ticket, "ticket", [&] {
    const size_t results = ticket->num_tables;
    check(results > 0, "the ticket is not that of a row-sparse all-reduce");
    check(results == num_tables, fmt::format("{} results of {} tables", num_tables, results));
    check_results(sums, num_tables);
    give_to(sums, ticket->ticket.sums());
  });
}

kolo_status kolo_row_sums_get(kolo_row_sums* sums, int* is_table, const int64_t** indices,
                              size_t* num_indices, kolo_buffer* rows) {
  return guarded_on(sums, "sums", [&] {
    const kolo::RowSums& result = sums->sums;
    if (is_table != nullptr) *is_table = result.is_table() ? 1 : 0;
    if (indices != nullptr) *indices = result.indices().data();
    if (num_indices != nullptr) *num_indices = result.indices().size();
    if (rows != nullptr) *rows = kolo::buffer_of(result.rows());
  });
}
