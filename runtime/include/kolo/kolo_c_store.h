#ifndef KOLO_KOLO_C_STORE_H
#define KOLO_KOLO_C_STORE_H

/*
 * The part of Kolo's C interface for parameter stores. Include <kolo/kolo_c.h>, which explains the
 * conventions. Meaning, threads and errors are those of `kolo::ParameterStore`.
 */

#include <kolo/kolo_c.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_parameters kolo_parameters; /* Keys and values that ranks share. */

typedef struct kolo_parameters_options {
  size_t size;
  const char* type;       /* local, device, dist_sync or dist_async. */
  const int32_t* servers; /* Ranks that keep values; NULL: all. */
  size_t num_servers;
  int64_t staleness;      /* Most pushes by which a worker is ahead of another one; -1: any. */
  size_t split_bytes;     /* Keys of more bytes are shared out among the servers. */
  size_t in_flight_bytes; /* Bytes of asynchronous pushes on their way. */
  const char* name;       /* Of the store's own group. */
  size_t arena_bytes;     /* Of the store's own group. */
} kolo_parameters_options;
#define KOLO_PARAMETERS_OPTIONS_INIT                                              \
  {                                                                               \
    sizeof(kolo_parameters_options), "dist_sync", NULL, 0, -1, (size_t)256 << 10, \
        (size_t)64 << 20, "store", (size_t)4 << 30                                \
  }

/* Creates a store. Collective; `options` may be NULL. */
kolo_status kolo_parameters_open(kolo_group* group, const kolo_parameters_options* options,
                                 kolo_parameters** store);
/* Waits until all ranks close the store. Collective; later calls fail. */
kolo_status kolo_parameters_close(kolo_parameters* store);
/* Closes the store unless it is closed, and frees the handle; logs errors. NULL is fine. */
void kolo_parameters_release(kolo_parameters* store);
/* This rank among those of the store, and their number. With NULL these return -1 and 0. */
int32_t kolo_parameters_rank(const kolo_parameters* store);
int32_t kolo_parameters_workers(const kolo_parameters* store);

/* What a pull has read: the number of updates, and of the pushes that it contains of the worker
 * that has pushed least. */
typedef struct kolo_parameters_version {
  uint64_t updates, slowest;
} kolo_parameters_version;

/* Creates a key with rank 0's value. Collective. */
kolo_status kolo_parameters_init(kolo_parameters* store, const char* key, const kolo_buffer* value,
                                 size_t row_width);
/* Merges the sum of these values into the key's. */
kolo_status kolo_parameters_push(kolo_parameters* store, const char* key, const kolo_buffer* values,
                                 size_t num_values);
/* Reads the value, or with `rows` only these rows. `version` may be NULL. */
kolo_status kolo_parameters_pull(kolo_parameters* store, const char* key, const kolo_buffer* out,
                                 const int64_t* rows, size_t num_rows,
                                 kolo_parameters_version* version);
kolo_status kolo_parameters_push_pull(kolo_parameters* store, const char* key,
                                      const kolo_buffer* values, size_t num_values,
                                      const kolo_buffer* out, kolo_parameters_version* version);

typedef struct kolo_optimizer {
  size_t size;
  const char* name; /* sgd, adam or adamw. */
  double lr, momentum, weight_decay, beta1, beta2, epsilon;
  double rescale; /* Multiplies what is pushed. */
} kolo_optimizer;
#define KOLO_OPTIMIZER_INIT \
  { sizeof(kolo_optimizer), "sgd", 0.01, 0.0, 0.0, 0.9, 0.999, 1e-8, 1.0 }
/* From now on pushes are gradients for this optimizer. Collective. */
kolo_status kolo_parameters_set_optimizer(kolo_parameters* store, const kolo_optimizer* optimizer);

/* Changes elements of a key in place, which begin at element `offset`. The thread is the one that
 * pushes; for dist_async it is one of the store. A result other than 0 ends the job if the store
 * has several ranks. */
typedef struct kolo_updater {
  size_t size;
  void* context; /* The first argument of the call. */
  int (*update)(void* context, const char* key, size_t offset, const kolo_buffer* value,
                const kolo_buffer* pushed);
} kolo_updater;
#define KOLO_UPDATER_INIT \
  { sizeof(kolo_updater), NULL, NULL }
/* From now on pushes are applied by this function, until the store is released. Collective. */
kolo_status kolo_parameters_set_updater(kolo_parameters* store, const kolo_updater* updater);

/* Waits until all ranks have called it and all their earlier pushes are applied. */
kolo_status kolo_parameters_barrier(kolo_parameters* store);

#ifdef __cplusplus
}
#endif

#endif
