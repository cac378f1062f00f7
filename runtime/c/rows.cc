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
    check_given(table, "table");
    check_given(sums, "sums");
    if (num_indices > 0) check_given(indices, "indices");
    const kolo_row_table given = kolo::complete(table, kolo_row_table KOLO_ROW_TABLE_INIT, "table");
    group->group.sparse_all_reduce(
        kolo::text_or_empty(name),
        {.height = given.height, .width = given.width, .dtype = kolo::dtype_of(given.dtype)},
        {indices, num_indices}, rows, sums->sums,
        {.op = kolo::op_of(given.op),
         .result = form_of(given.result),
         .exchange = form_of(given.exchange)});
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
