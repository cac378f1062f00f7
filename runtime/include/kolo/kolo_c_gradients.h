#ifndef KOLO_KOLO_C_GRADIENTS_H
#define KOLO_KOLO_C_GRADIENTS_H

/* Sets of gradients and row-sparse all-reduces of Kolo's C interface, which kolo_c.h describes. */

#include <kolo/kolo_c.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Gradients -------------------------------------------------------------------------------- */

typedef struct kolo_gradients kolo_gradients; /* A set of gradients. */

typedef struct kolo_gradient {
  size_t size;
  const char* name;
  const size_t* shape;   /* Elements per dimension. */
  size_t num_dimensions; /* At least 1: a scalar has one dimension of one element. */
  kolo_dtype dtype;
  kolo_memory memory;
  /* Memory of the gradient alone, which keeps its address as long as the set lives. NULL: the
   * gradient is in Kolo's arena; see `kolo_gradients_view`. */
  void* data;
  const char* compression; /* "topk(0.01)", ...; NULL: the rules of the set. */
  kolo_dtype wire_dtype;
} kolo_gradient;
#define KOLO_GRADIENT_INIT \
  { sizeof(kolo_gradient), NULL, NULL, 0, KOLO_SAME_DTYPE, KOLO_HOST, NULL, NULL, KOLO_SAME_DTYPE }

typedef int32_t kolo_divisor;
enum {
  KOLO_ALL_RANKS = 0,
  KOLO_CONTRIBUTING_RANKS = 1,
  KOLO_SAMPLES = 2 /* See `kolo_gradients_set_samples`. */
};

typedef struct kolo_gradient_options {
  size_t size;
  kolo_op op;
  kolo_dtype wire_dtype;
  const char* compression; /* Rules by name; NULL: the option `compression`. */
  kolo_divisor divisor;
} kolo_gradient_options;
#define KOLO_GRADIENT_OPTIONS_INIT \
  { sizeof(kolo_gradient_options), KOLO_AVERAGE, KOLO_SAME_DTYPE, NULL, KOLO_ALL_RANKS }

/* Registers a set of gradients that is equal on all ranks of the group, and plans its buckets.
 * Collective. All elements of `gradients` have one `size`. `options` may be NULL. */
kolo_status kolo_register_gradients(kolo_group* group, const char* name,
                                    const kolo_gradient* gradients, size_t num_gradients,
                                    const kolo_gradient_options* options, kolo_gradients** set);
/* Works like `kolo_register_gradients`, for gradients that are contiguous in `buffer`. Gradient i
 * has sizes[i] elements, and its index is its name: "0", "1", ... */
kolo_status kolo_register_flat_gradients(kolo_group* group, const char* name, kolo_buffer buffer,
                                         const size_t* sizes, size_t num_gradients,
                                         const kolo_gradient_options* options,
                                         kolo_gradients** set);
/* Releases the set. In the middle of an iteration it first ends that iteration, so that nothing
 * uses the memory of gradients afterwards: it waits for the values if all gradients are marked;
 * otherwise this rank leaves the job, as by `kolo_abort`. NULL is fine. */
void kolo_gradients_release(kolo_gradients* set);

size_t kolo_gradients_size(const kolo_gradients* set);
/* Writes the memory of a gradient, which never moves. */
kolo_status kolo_gradients_view(kolo_gradients* set, size_t index, kolo_buffer* view);

/* Marks a gradient of this iteration as complete. Its bucket starts when all gradients of the
 * bucket are marked. */
kolo_status kolo_gradients_ready(kolo_gradients* set, size_t index);
/* Works like `kolo_gradients_ready`, and checks that the gradient still has its registered address.
 * If `data` is another address, it returns KOLO_USAGE and marks nothing. */
kolo_status kolo_gradients_ready_at(kolo_gradients* set, size_t index, const void* data);
/* Works like `kolo_gradients_ready`, for device memory: the gradient is complete after the work
 * enqueued on `stream`. */
kolo_status kolo_gradients_ready_on(kolo_gradients* set, size_t index, void* stream);
/* Marks a gradient as unused by this rank in this iteration. */
kolo_status kolo_gradients_absent(kolo_gradients* set, size_t index);
kolo_status kolo_gradients_absent_on(kolo_gradients* set, size_t index, void* stream);
/* Marks all gradients as unused that are not yet marked in this iteration, because this rank cannot
 * compute them. Then call `kolo_gradients_wait` and the optimizer's step like the other ranks. */
kolo_status kolo_gradients_give_up(kolo_gradients* set);
/* Works like `kolo_gradients_give_up`, for device memory used by the work enqueued on `stream`. */
kolo_status kolo_gradients_give_up_on(kolo_gradients* set, void* stream);
/* Sets this rank's number of samples for this iteration and all later ones. */
kolo_status kolo_gradients_set_samples(kolo_gradients* set, double samples);
/* Waits for at most `timeout_ms` until every gradient has the combined value, and writes whether
 * the iteration is over. A negative value waits for `operation_timeout`, then returns
 * KOLO_TIMEOUT. */
kolo_status kolo_gradients_wait(kolo_gradients* set, int64_t timeout_ms, int* done);
/* Works like `kolo_gradients_wait`, for one gradient, so that the optimizer can update layer by
 * layer. Mark all gradients first, and end the iteration by `kolo_gradients_wait`; until then only
 * read the memory. */
kolo_status kolo_gradients_wait_one(kolo_gradients* set, size_t index, int64_t timeout_ms,
                                    int* done);
/* Writes a descriptor that is readable while there are combined gradients for
 * `kolo_gradients_take_combined` to return, and once the set has failed. It may also be readable
 * without cause. The set owns it; only poll it. */
kolo_status kolo_gradients_event(kolo_gradients* set, int* descriptor);
/* Writes the indices, and their number, of the gradients that were combined since the last call in
 * this iteration. The array must have room for all gradients. Never blocks. End the iteration by
 * `kolo_gradients_wait`, in the same thread; until then only read the memory. */
kolo_status kolo_gradients_take_combined(kolo_gradients* set, size_t* indices, size_t* num_indices);
/* Blocks until all work on device memory is enqueued, and makes `stream` wait for the values. */
kolo_status kolo_gradients_wait_on(kolo_gradients* set, void* stream);

/* Return, as JSON, the plan in force; and the number of values beyond the range of a 16-bit wire
 * with compression statistics. */
const char* kolo_gradients_plan(kolo_gradients* set);
const char* kolo_gradients_statistics(kolo_gradients* set);

enum {
  KOLO_SPARSE = 1,            /* The next iteration adds it to a residual; mark it unscaled. */
  KOLO_CORRECTS_MOMENTUM = 2, /* Kolo already applies momentum ("dgc"). */
  KOLO_WARMING_UP = 4         /* The next iteration is a dense one that precedes sparse ones. */
};
kolo_status kolo_gradients_flags(kolo_gradients* set, size_t index, uint32_t* flags);

/* Make the compression calls below between two iterations. */

/* Makes the next iteration dense and sends all residuals with it. Collective. */
kolo_status kolo_gradients_flush(kolo_gradients* set);
/* Discards all residuals. Collective. */
kolo_status kolo_gradients_drop(kolo_gradients* set);
/* Writes this rank's compression state for its checkpoint. The set owns it until the next call. */
kolo_status kolo_gradients_save(kolo_gradients* set, const void** state, size_t* bytes);
/* Restores a state of the same set on the same number of ranks. */
kolo_status kolo_gradients_load(kolo_gradients* set, const void* state, size_t bytes);
/* Restores the states of all former ranks, in rank order, on any number of ranks. Collective, with
 * equal states. */
kolo_status kolo_gradients_remap(kolo_gradients* set, const void* const* states,
                                 const size_t* bytes, size_t num_states);
/* Writes the Euclidean norm of a gradient's residual on this rank; -1 if it is sent dense. */
kolo_status kolo_gradients_residual_norm(kolo_gradients* set, const char* gradient, double* norm);

/* --- Weights ---------------------------------------------------------------------------------- */

/* Checks that tensors in host memory have the same names, dtypes and bytes on all ranks.
 * Collective. KOLO_MISMATCH, the same on every rank, names the tensors that differ and the ranks
 * that differ from rank 0. `names` has one name per tensor; `name` identifies the check on all
 * ranks. */
kolo_status kolo_check_equal(kolo_group* group, const char* name, const kolo_buffer* tensors,
                             const char* const* names, size_t num_tensors);

/* --- Row-sparse all-reduce -------------------------------------------------------------------- */

typedef struct kolo_row_sums kolo_row_sums; /* Result for one table; later calls can reuse it. */

typedef int32_t kolo_row_form;
enum { KOLO_AUTO_FORM = 0, KOLO_ROWS = 1, KOLO_TABLE = 2 };

/* This rank's rows of one table. */
typedef struct kolo_row_table {
  size_t height;          /* Rows of the table. */
  size_t width;           /* Elements of a row. */
  const int64_t* indices; /* In host memory; they may repeat. */
  size_t num_indices;
  const void* rows; /* One row for each of `indices`. */
  kolo_dtype dtype;
  kolo_memory memory; /* Memory of the rows and their sums. */
} kolo_row_table;

typedef struct kolo_row_options {
  size_t size;
  kolo_op op;             /* KOLO_SUM or KOLO_AVERAGE. */
  kolo_row_form result;   /* KOLO_AUTO_FORM: the form of the exchange. */
  kolo_row_form exchange; /* KOLO_AUTO_FORM: the form with the lower predicted time. */
} kolo_row_options;
#define KOLO_ROW_OPTIONS_INIT \
  { sizeof(kolo_row_options), KOLO_SUM, KOLO_AUTO_FORM, KOLO_AUTO_FORM }

kolo_status kolo_row_sums_create(kolo_row_sums** sums);
void kolo_row_sums_release(kolo_row_sums* sums);
/* Sums rows of tables over all ranks. All tables have one dtype, are in memory of one kind, and
 * share their exchanges. `sums` has one handle per table; the call reuses their memory, unless it
 * is refused. With NULL as `ticket` the call blocks, and `sums` has the results afterwards.
 * Otherwise `kolo_ticket_row_sums` gives the results: `sums` may be NULL and is empty until then,
 * and `rows` stay valid until the ticket is done or released. `options` and `call` may be NULL. */
kolo_status kolo_sparse_all_reduce(kolo_group* group, const kolo_row_table* tables,
                                   size_t num_tables, const kolo_row_options* options,
                                   const kolo_call* call, kolo_row_sums* const* sums,
                                   kolo_ticket** ticket);
/* Waits for a ticket of `kolo_sparse_all_reduce`, and moves its results to `sums`, one for each
 * table. The results can be taken once. */
kolo_status kolo_ticket_row_sums(kolo_ticket* ticket, kolo_row_sums* const* sums,
                                 size_t num_tables);
/* Writes 1 if the result is the whole table, 0 if it is the rows of `indices`. */
kolo_status kolo_row_sums_get(kolo_row_sums* sums, int* is_table, const int64_t** indices,
                              size_t* num_indices, kolo_buffer* rows);

#ifdef __cplusplus
}
#endif

#endif
