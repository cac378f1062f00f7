#include <span>
#include <utility>
#include <variant>

#include <kolo/kolo_c.h>

#include "runtime/c/arguments.h"
#include "runtime/c/guard.h"
#include "runtime/c/handles.h"

using kolo::check;
using kolo::check_given;
using kolo::guarded;
using kolo::RowForm;

static_assert(KOLO_AUTO_FORM == static_cast<int>(RowForm::kAuto));
static_assert(KOLO_ROWS == static_cast<int>(RowForm::kRows));
static_assert(KOLO_TABLE == static_cast<int>(RowForm::kTable));

namespace {

RowForm form_of(kolo_row_form form) {
  check(form >= KOLO_AUTO_FORM && form <= KOLO_TABLE, fmt::format("{} is not a form", form));
  return static_cast<RowForm>(form);
}

/// Arguments of both forms of the call.
struct RowArguments {
  RowArguments(const kolo_row_table* given_table, const int64_t* given_indices, size_t count) {
    check_given(given_table, "table");
    if (count > 0) check_given(given_indices, "indices");
    const auto given = kolo::complete(given_table, kolo_row_table KOLO_ROW_TABLE_INIT, "table");
    table = {.height = given.height, .width = given.width, .dtype = kolo::dtype_of(given.dtype)};
    options = {.op = kolo::op_of(given.op),
               .result = form_of(given.result),
               .exchange = form_of(given.exchange),
               .scales = {.before = given.scale_before, .after = given.scale_after}};
    indices = {given_indices, count};
  }

  kolo::RowTable table;
  kolo::RowOptions options;
  std::span<const int64_t> indices;
};

}  // namespace

kolo_status kolo_row_sums_create(kolo_row_sums** sums) {
  return guarded([&] {
    check_given(sums, "sums");
    *sums = new kolo_row_sums;
  });
}

void kolo_row_sums_release(kolo_row_sums* sums) { delete sums; }

kolo_status kolo_sparse_all_reduce(kolo_group* group, const char* name, const kolo_row_table* table,
                                   const int64_t* indices, size_t num_indices, const void* rows,
                                   kolo_row_sums* sums) {
  return guarded([&] {
    check_given(group, "group");
    check_given(sums, "sums");
    const RowArguments with(table, indices, num_indices);
    group->group.sparse_all_reduce(kolo::text_or_empty(name), with.table, with.indices, rows,
                                   sums->sums, with.options);
  });
}

kolo_status kolo_sparse_all_reduce_async(kolo_group* group, const char* name,
                                         const kolo_row_table* table, const int64_t* indices,
                                         size_t num_indices, const void* rows, kolo_row_sums* sums,
                                         kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    check_given(ticket, "ticket");
    *ticket = nullptr;
    const RowArguments with(table, indices, num_indices);
    kolo::RowSums memory = sums == nullptr ? kolo::RowSums() : std::move(sums->sums);
    *ticket = new kolo_ticket{
        group->group.sparse_all_reduce_async(kolo::text_or_empty(name), with.table, with.indices,
                                             rows, with.options, std::move(memory))};
  });
}

kolo_status kolo_ticket_row_sums(kolo_ticket* ticket, kolo_row_sums* sums) {
  return guarded([&] {
    check_given(ticket, "ticket");
    check_given(sums, "sums");
    auto* const rows = std::get_if<kolo::RowTicket>(&ticket->ticket);
    check(rows != nullptr, "the ticket is not that of a row-sparse all-reduce");
    check(rows->done(), "the operation is not done");
    sums->sums = rows->sums();
  });
}

kolo_status kolo_row_sums_get(kolo_row_sums* sums, int* is_table, const int64_t** indices,
                              size_t* num_indices, kolo_buffer* rows) {
  return guarded([&] {
    check_given(sums, "sums");
    const kolo::RowSums& result = sums->sums;
    if (is_table != nullptr) *is_table = result.is_table() ? 1 : 0;
    if (indices != nullptr) *indices = result.indices().data();
    if (num_indices != nullptr) *num_indices = result.indices().size();
    if (rows != nullptr) *rows = kolo::buffer_of(result.rows());
  });
}
