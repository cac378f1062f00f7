#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
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

/// What a call says of its table, or of all its tables.
struct RowTerms {
  explicit RowTerms(const kolo_row_table* table) {
    check_given(table, "table");
    const auto given = kolo::complete(table, kolo_row_table KOLO_ROW_TABLE_INIT, "table");
    height = given.height;
    width = given.width;
    dtype = kolo::dtype_of(given.dtype);
    memory = kolo::memory_of(given.memory);
    stream = {given.stream};
    options = {.op = kolo::op_of(given.op),
               .result = form_of(given.result),
               .exchange = form_of(given.exchange),
               .scales = {.before = given.scale_before, .after = given.scale_after}};
  }

  kolo::RowTable table() const { return table(height, width); }
  kolo::RowTable table(std::size_t rows, std::size_t elements) const {
    return {.height = rows, .width = elements, .dtype = dtype, .memory = memory};
  }

  std::size_t height = 0, width = 0;
  kolo::DType dtype;
  kolo::MemoryKind memory;
  kolo::NativeStream stream;
  kolo::RowOptions options;
};

std::span<const int64_t> indices_of(const int64_t* indices, size_t count) {
  if (count > 0) check_given(indices, "indices");
  return {indices, count};
}

/// Lends the memory of a caller's results while C++ has them in a row.
std::vector<kolo::RowSums> take_from(kolo_row_sums* const* sums, size_t count) {
  std::vector<kolo::RowSums> taken;
  for (size_t i = 0; i < count; ++i) {
    check_given(sums[i], "sums");
    taken.push_back(std::move(sums[i]->sums));
  }
  return taken;
}

void give_to(kolo_row_sums* const* sums, std::vector<kolo::RowSums>& taken) {
  for (size_t i = 0; i < taken.size(); ++i) sums[i]->sums = std::move(taken[i]);
}

kolo::RowTicket& row_ticket(kolo_ticket* ticket) {
  check_given(ticket, "ticket");
  auto* const rows = std::get_if<kolo::RowTicket>(&ticket->ticket);
  check(rows != nullptr, "the ticket is not that of a row-sparse all-reduce");
  check(rows->done(), "the operation is not done");
  return *rows;
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
    check_given(sums, "sums");
    const RowTerms with(table);
    group->group.sparse_all_reduce(kolo::text_or_empty(name), with.table(),
                                   indices_of(indices, num_indices), rows, sums->sums, with.options,
                                   with.stream);
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
    const RowTerms with(table);
    const auto given = indices_of(indices, num_indices);
    kolo::RowSums memory = sums == nullptr ? kolo::RowSums() : std::move(sums->sums);
    *ticket = new kolo_ticket{
        group->group.sparse_all_reduce_async(kolo::text_or_empty(name), with.table(), given, rows,
                                             with.options, std::move(memory), with.stream)};
  });
}

kolo_status kolo_ticket_row_sums(kolo_ticket* ticket, kolo_row_sums* sums) {
  return guarded([&] {
    kolo::RowTicket& rows = row_ticket(ticket);
    check_given(sums, "sums");
    sums->sums = rows.sums();
  });
}

kolo_status kolo_grouped_sparse_all_reduce(kolo_group* group, const char* name,
                                           const kolo_row_table* terms,
                                           const kolo_table_rows* tables, size_t num_tables,
                                           kolo_row_sums* const* sums, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    check_given(tables, "tables");
    const RowTerms with(terms);
    std::vector<kolo::TableRows> given;
    for (const kolo_table_rows& each : std::span(tables, num_tables)) {
      given.push_back({.table = with.table(each.height, each.width),
                       .indices = indices_of(each.indices, each.num_indices),
                       .rows = each.rows});
    }
    if (ticket == nullptr) {
      check_given(sums, "sums");
      std::vector<kolo::RowSums> results = take_from(sums, num_tables);
      group->group.sparse_all_reduce(kolo::text_or_empty(name), given, results, with.options,
                                     with.stream);
      return give_to(sums, results);
    }
    *ticket = nullptr;
    std::vector<kolo::RowSums> memory;
    if (sums != nullptr) memory = take_from(sums, num_tables);
    *ticket = new kolo_ticket{group->group.sparse_all_reduce_async(
        kolo::text_or_empty(name), given, with.options, std::move(memory), with.stream)};
  });
}

kolo_status kolo_ticket_grouped_row_sums(kolo_ticket* ticket, kolo_row_sums* const* sums,
                                         size_t num_tables) {
  return guarded([&] {
    kolo::RowTicket& rows = row_ticket(ticket);
    check_given(sums, "sums");
    check(rows.tables() == num_tables,
          fmt::format("{} results of {} tables", num_tables, rows.tables()));
    for (size_t i = 0; i < num_tables; ++i) check_given(sums[i], "sums");
    std::vector<kolo::RowSums> results = rows.all_sums();
    give_to(sums, results);
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
