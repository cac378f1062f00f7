#ifndef KOLO_KOLO_C_H
#define KOLO_KOLO_C_H

/*
 * Kolo's C interface: the one binary interface that stays compatible, in libkolo.so.2. This header
 * declares the job, groups, collectives and messages, and includes those for gradients and for
 * parameter stores.
 *
 *     kolo_runtime* runtime = NULL;
 *     if (kolo_open(NULL, &runtime) != KOLO_OK) return fail();  // mpirun, torchrun, srun or alone
 *     kolo_group* world = kolo_world(runtime);
 *     float x[1000] = ...;
 *     kolo_tensor tensor = KOLO_TENSOR(x, 1000, KOLO_FLOAT32);
 *     kolo_all_reduce(world, &tensor, 1, KOLO_SUM, NULL, NULL);
 *     kolo_release(runtime);
 *
 * Unless this header says otherwise, meaning, lifetimes, threads and costs are those of the C++
 * interface, <kolo/kolo.h>.
 *
 * Errors:    nearly every function returns a status: KOLO_OK or the class of the error.
 *            `kolo_last_error` gives the full error of the calling thread's last failed call.
 *            No function throws.
 *
 * Structs:   a struct that begins with `size` may get more fields in later versions. Set `size` to
 *            the sizeof of the struct; the _INIT macros set it and every default. A program that
 *            was built with an older header keeps working.
 *
 * Handles:   release each handle once. Functions return KOLO_USAGE for a null handle, or NULL, 0 or
 *            -1 if they return no status. A release first ends the operations of the handle;
 *            afterwards Kolo does not use the buffers of these operations. Release groups, gradient
 *            sets, row sums and parameter stores before their runtime, and tickets at any time.
 *
 * Text:      UTF-8, ends with a null byte. A returned `const char*` belongs to the handle that was
 *            the argument, until the next call of the same function with that handle.
 *
 * Callbacks: those of a `kolo_store`, in the thread that calls `kolo_open`, and a `kolo_updater`.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Errors ----------------------------------------------------------------------------------- */

typedef int32_t kolo_status;
enum {
  KOLO_OK = 0,
  KOLO_USAGE = 1,     /* The caller broke the contract of a call. */
  KOLO_DATA = 2,      /* Saved state is truncated, malformed or of another set. */
  KOLO_PEER_LOST = 3, /* Another rank died, froze or became unreachable. */
  KOLO_INTERNAL = 4,  /* An invariant of Kolo itself does not hold. */
  KOLO_RESOURCES = 5, /* Out of descriptors, memory or arena space. */
  KOLO_IO = 6,        /* A system call on a file or socket failed. */
  KOLO_TIMEOUT = 7,   /* A deadline passed although every peer is alive. */
  KOLO_STALL = 8,     /* Ranks waited too long for tensors that others had not submitted. */
  KOLO_MISMATCH = 9,  /* Ranks disagree about a tensor's name, shape, dtype or operation. */
  KOLO_AUTH = 10,     /* A peer did not know the secret of the job. */
  KOLO_CONFIG = 11,   /* Options are unknown, malformed or contradict each other. */
  KOLO_SHUTDOWN = 12, /* The runtime was closed before the operation finished. */
  KOLO_CANCELLED = 13 /* The program cancelled the operation. */
};

/* One error. Fields that do not apply are -1 or "". */
typedef struct kolo_error {
  size_t size;
  kolo_status status;
  int32_t rank;       /* Rank that found the error. */
  int32_t peer;       /* Rank that caused the error. */
  const char* group;  /* Group that numbers these ranks; "" for the job. */
  const char* verb;   /* mark, agree, plan, start, run, complete or wait. */
  const char* tensor; /* Bucket or tensor. */
  const char* what;   /* Cause, as a sentence for people. */
  const char* text;   /* One line with all fields. */
} kolo_error;

/* Returns the error of this thread's last failed call; NULL if none has failed. It stays valid
 * until the thread's next failed call. */
const kolo_error* kolo_last_error(void);
/* Returns the name of a status: "peer lost", "mismatch", ... */
const char* kolo_status_name(kolo_status status);
/* Returns the exit status for this class of error: 64 usage, 69 peer lost, ... */
int kolo_exit_status(kolo_status status);
/* Returns the version of the library: "0.1.0". */
const char* kolo_version(void);
/* Returns 1 if the library was built with "cuda" or "nccl", whichever is the name, else 0. */
int kolo_built_with(const char* name);

/* --- Tensors ---------------------------------------------------------------------------------- */

typedef int32_t kolo_dtype;
enum {
  /* Only as a wire dtype: the option `wire_dtype`, by default the elements' dtype. */
  KOLO_SAME_DTYPE = 0,
  KOLO_FLOAT32 = 1,
  KOLO_FLOAT64 = 2,
  KOLO_FLOAT16 = 3,
  KOLO_BFLOAT16 = 4,
  KOLO_INT32 = 5,
  KOLO_INT64 = 6,
  KOLO_UINT8 = 7,
  KOLO_INT8 = 8,
  KOLO_BOOL = 9,        /* A byte of value 0 or 1. */
  KOLO_COMPLEX64 = 10,  /* Two float32. */
  KOLO_COMPLEX128 = 11, /* Two float64. */
  KOLO_FLOAT8_E4M3 = 12,
  KOLO_FLOAT8_E5M2 = 13
};
/* Return the dtype's name, such as "float32", and the bytes of an element; NULL and 0 for a number
 * that is not a dtype. Dtypes are numbered without a gap. */
const char* kolo_dtype_name(kolo_dtype dtype);
size_t kolo_dtype_size(kolo_dtype dtype);

typedef int32_t kolo_op;
enum {
  KOLO_SUM = 0,
  KOLO_MIN = 1,
  KOLO_MAX = 2,
  KOLO_PROD = 3,
  KOLO_AVERAGE = 4,
  KOLO_BIT_AND = 5,
  KOLO_BIT_OR = 6,
  KOLO_BIT_XOR = 7,
  KOLO_PREMUL_SUM = 8 /* Sum of contributions, each multiplied by its rank's `scale_before`. */
};
/* Returns the operation's name, such as "sum"; NULL for a number that is not an operation.
 * Operations are numbered without a gap. */
const char* kolo_op_name(kolo_op op);
/* Returns 1 if the operation is defined on elements of the dtype, else 0. */
int kolo_op_takes(kolo_op op, kolo_dtype dtype);

typedef int32_t kolo_memory;
enum {
  KOLO_HOST = 0,
  KOLO_DEVICE = 2 /* Memory of the device that the option `device` names. */
};

/* Contiguous elements. */
typedef struct kolo_buffer {
  void* data;
  size_t count; /* Elements. */
  kolo_dtype dtype;
  kolo_memory memory;
} kolo_buffer;

/* One tensor of a collective. A buffer that a rank does not use is ignored, and may be NULL with 0
 * elements. */
typedef struct kolo_tensor {
  const void* input;  /* Read, never written. NULL with 0 elements if in place. */
  size_t input_count; /* Elements. */
  void* result;       /* Receives the result; in place it is the input, too. */
  size_t result_count;
  /* Elements of each part, equal on all ranks: one count per rank or, in an all-to-all, one count
   * per pair of ranks, ordered by sender, then receiver. NULL if all parts have one size. */
  const size_t* counts;
  size_t num_counts;
  kolo_dtype dtype;
  kolo_memory memory;
} kolo_tensor;
/* Initialise a tensor in host memory with parts of one size: in place, or with two buffers. */
#define KOLO_TENSOR(data, count, dtype) \
  { NULL, 0, data, count, NULL, 0, dtype, KOLO_HOST }
#define KOLO_TENSOR_TO(input, input_count, result, result_count, dtype) \
  { input, input_count, result, result_count, NULL, 0, dtype, KOLO_HOST }

/* --- The job ---------------------------------------------------------------------------------- */

typedef struct kolo_runtime kolo_runtime; /* One rank's connection to its job. */
typedef struct kolo_group kolo_group;     /* A group of ranks. */
typedef struct kolo_ticket kolo_ticket;   /* One asynchronous operation. */

/* An option by its name in the user guide: {"fusion_bytes", "4M"}. */
typedef struct kolo_setting {
  const char* name;
  const char* value;
} kolo_setting;

/* A key-value store that all ranks share, through which they find each other. Both calls return 0
 * on success, KOLO_TIMEOUT if there is no value in time, or anything else for a failure. Values are
 * bytes. */
typedef struct kolo_store {
  size_t size;
  void* context; /* The first argument of the calls. */
  /* Stores a value under a new key. */
  int (*set)(void* context, const char* key, const void* value, size_t bytes);
  /* Waits for a value; it stays valid until the next call. */
  int (*get)(void* context, const char* key, int64_t timeout_ms, const void** value, size_t* bytes);
} kolo_store;
#define KOLO_STORE_INIT \
  { sizeof(kolo_store), NULL, NULL, NULL }

typedef struct kolo_open_options {
  size_t size;
  /* Options by name. Other options have the values of KOLO_* variables, or defaults. */
  const kolo_setting* settings;
  size_t num_settings;
  /* NULL: rank, size and rendezvous come from the environment. */
  const kolo_store* store;
  int32_t rank;       /* With a store: this process's rank, from 0. */
  int32_t world_size; /* With a store: number of ranks. */
  const char* job;    /* With a store: prefix of all keys; differs for each job in a store. */
} kolo_open_options;
#define KOLO_OPEN_OPTIONS_INIT \
  { sizeof(kolo_open_options), NULL, 0, NULL, 0, 1, "kolo" }

/* Joins the job. Collective. `options` may be NULL. */
kolo_status kolo_open(const kolo_open_options* options, kolo_runtime** runtime);
/* Waits until all ranks close the job, and ends it. Collective; later calls fail. */
kolo_status kolo_close(kolo_runtime* runtime);
/* Leaves the job at once, because this rank cannot go on. Calls of the other ranks fail; their
 * error quotes `why`. */
kolo_status kolo_abort(kolo_runtime* runtime, const char* why);
/* Closes the job unless it is closed or aborted, and frees the handle. Logs errors; ignores
 * NULL. */
void kolo_release(kolo_runtime* runtime);
/* Stops counting the calling thread as a user of the job until its next call. Call it before the
 * thread waits, outside Kolo, for another thread that calls Kolo. */
kolo_status kolo_leave_thread(kolo_runtime* runtime);

/* This rank's position in the job. */
typedef struct kolo_place {
  size_t size;
  int32_t rank, world_size;
  int32_t local_rank, local_size; /* Within its node. */
  int32_t node, num_nodes;
} kolo_place;
#define KOLO_PLACE_INIT \
  { sizeof(kolo_place), 0, 0, 0, 0, 0, 0 }
kolo_status kolo_get_place(kolo_runtime* runtime, kolo_place* place);
/* Writes the value of an option in force, as text. */
kolo_status kolo_get_setting(kolo_runtime* runtime, const char* name, const char** value);
/* Returns the link costs in force, as text for the option `link_costs`. */
const char* kolo_link_costs(kolo_runtime* runtime);
/* Returns the numeric address of this node for other nodes; empty if all ranks share a node. */
const char* kolo_network_address(kolo_runtime* runtime);

/* Allocates memory that the other ranks of the node can read directly, which saves copies. It is
 * page-aligned, and its contents are undefined. Not collective; free it before the runtime is
 * released. */
kolo_status kolo_allocate(kolo_runtime* runtime, size_t bytes, void** data);
kolo_status kolo_free(kolo_runtime* runtime, void* data);

/* --- Groups ----------------------------------------------------------------------------------- */

/* Returns the group of all ranks, which belongs to the runtime. Returns NULL for NULL. */
kolo_group* kolo_world(kolo_runtime* runtime);

typedef struct kolo_group_options {
  size_t size;
  const char* name;   /* Appears in errors, and tells groups of the same ranks apart. */
  size_t arena_bytes; /* Address space of each member's arena. */
  /* Milliseconds: time limit of every wait in the group, once it exists; 0: that of the job. */
  int64_t operation_timeout;
} kolo_group_options;
#define KOLO_GROUP_OPTIONS_INIT \
  { sizeof(kolo_group_options), "", (size_t)64 << 20, 0 }

/* Creates a group of the given ranks of `parent`, in that order. Only its members call this. */
kolo_status kolo_group_create(kolo_group* parent, const int32_t* ranks, size_t num_ranks,
                              const kolo_group_options* options, kolo_group** group);
/* Creates one group for each color, ordered by key and then by rank. Collective over `parent`; a
 * rank with a negative color gets NULL. */
kolo_status kolo_group_split(kolo_group* parent, int32_t color, int32_t key,
                             const kolo_group_options* options, kolo_group** group);
/* Creates a group of the ranks of `parent` on this node. */
kolo_status kolo_group_node(kolo_group* parent, const kolo_group_options* options,
                            kolo_group** group);
/* Creates a group of the ranks of `parent` with the same local rank. */
kolo_status kolo_group_cross(kolo_group* parent, const kolo_group_options* options,
                             kolo_group** group);
/* Requires that from now on all ranks begin the collectives of this group in the same order. If the
 * n-th collectives of two ranks differ, both fail with KOLO_MISMATCH; the error quotes both. All
 * ranks call it at the same point, while no collective of the group is in flight. */
kolo_status kolo_group_keep_order(kolo_group* group);
/* Waits until all members close the group. Collective; later calls fail. */
kolo_status kolo_group_close(kolo_group* group);
/* Releases the group without waiting for its other members. NULL and `kolo_world` are fine. */
void kolo_group_release(kolo_group* group);

/* Return this rank in the group, and the group's number of ranks; -1 and 0 for NULL. */
int32_t kolo_group_rank(const kolo_group* group);
int32_t kolo_group_size(const kolo_group* group);
/* Writes the rank in the job of each rank of the group. Writes nothing for NULL. */
void kolo_group_ranks(const kolo_group* group, int32_t* ranks_of_job);
/* Returns the payload bytes that this rank has sent to other nodes in the group's operations. */
uint64_t kolo_network_bytes_sent(const kolo_group* group);

/* --- Collectives ------------------------------------------------------------------------------ */

/* Options common to all collectives; all fields may stay at their defaults. */
typedef struct kolo_call {
  size_t size;
  /* Identifies the operation on all ranks. NULL: the operation is named after its arguments; all
   * ranks must then call operations with equal arguments in one order. Calls with one name run one
   * after the other. */
  const char* name;
  double scale_before; /* Multiplies contributions. */
  double scale_after;  /* Multiplies the result. */
  void* stream;        /* For device memory: a cudaStream_t. */
  /* With KOLO_BFLOAT16, an all-reduce or reduce-scatter of float32 or float64 in host memory,
   * without scales, sends its elements as bfloat16. */
  kolo_dtype wire_dtype;
} kolo_call;
#define KOLO_CALL_INIT \
  { sizeof(kolo_call), NULL, 1.0, 1.0, NULL, KOLO_SAME_DTYPE }

/*
 * Each collective takes a list of tensors of one dtype, in memory of one kind. The tensors share
 * one agreement and their messages; each gets the result that a call with that tensor alone would
 * give. A buffer that the call writes overlaps no other buffer. Tensors are in place on all ranks
 * or on none; in a gather or scatter, only the root chooses. `call` may be NULL.
 *
 * If `ticket` is NULL, the call blocks until the operation is over; after `operation_timeout` it
 * ends the operation as `kolo_ticket_release` does. Otherwise the call starts the operation and
 * writes a ticket; the buffers then stay valid and untouched until the ticket is done or released.
 * The list and its counts need not outlive the call.
 */

/* Combines all ranks' elements. */
kolo_status kolo_all_reduce(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                            kolo_op op, const kolo_call* call, kolo_ticket** ticket);
/* Copies the elements of rank `root` to all ranks. Only the root's input is read. */
kolo_status kolo_broadcast(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                           int32_t root, const kolo_call* call, kolo_ticket** ticket);
/* Combines all ranks' elements on rank `root`. Out of place the other ranks need no result. */
kolo_status kolo_reduce(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                        int32_t root, kolo_op op, const kolo_call* call, kolo_ticket** ticket);
/* Combines all ranks' inputs, which hold a part for each rank; each rank gets its part as result.
 * In place the result holds all parts, and only this rank's part is combined. */
kolo_status kolo_reduce_scatter(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                                kolo_op op, const kolo_call* call, kolo_ticket** ticket);
/* Copies each rank's input to its part of the result on all ranks. In place this rank's part
 * already is at its offset in the result. */
kolo_status kolo_all_gather(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                            const kolo_call* call, kolo_ticket** ticket);
/* Copies each rank's input to its part of the result on rank `root`; other ranks have no result. If
 * the root is in place, its part already is at its offset in the result. */
kolo_status kolo_gather(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                        int32_t root, const kolo_call* call, kolo_ticket** ticket);
/* Copies part r of the input of rank `root` to the result of rank r; other ranks have no input. If
 * the root has no result, its part stays in the input. */
kolo_status kolo_scatter(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                         int32_t root, const kolo_call* call, kolo_ticket** ticket);
/* Copies part r of the input of rank s to part s of the result of rank r. In place, any two ranks
 * send each other equally many elements. */
kolo_status kolo_all_to_all(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                            const kolo_call* call, kolo_ticket** ticket);
/* The operation is over when every rank has called it. */
kolo_status kolo_barrier(kolo_group* group, kolo_ticket** ticket);

/* For a rank that has run out of data: contributes neutral elements to the operations of other
 * ranks until all ranks have joined. Blocks, then writes the rank that joined last. */
kolo_status kolo_join(kolo_group* group, int32_t* last_rank);

/* --- Messages --------------------------------------------------------------------------------- */

enum { KOLO_ANY_RANK = -1 };

typedef struct kolo_received {
  int32_t source; /* Rank that sent the message. */
  size_t count;   /* Elements, of all buffers. */
} kolo_received;

/*
 * A message is one buffer or a list of buffers, in memory of one kind. Their dtypes may differ. A
 * receive of one buffer may be longer than the message; a receive of a list has as many buffers as
 * the send, each of equal dtype and count. Buffers in device memory are used after the work
 * enqueued on `stream`, a cudaStream_t. `ticket` is as for collectives.
 */

/* Sends a message to rank `peer`. The operation is over when the buffers may be reused. */
kolo_status kolo_send(kolo_group* group, const kolo_buffer* buffers, size_t num_buffers,
                      int32_t peer, uint64_t tag, void* stream, kolo_ticket** ticket);
/* Receives a message from rank `peer`, or from any rank if `peer` is KOLO_ANY_RANK. `received` may
 * be NULL; if `ticket` is not NULL, use `kolo_ticket_received` instead. */
kolo_status kolo_recv(kolo_group* group, const kolo_buffer* buffers, size_t num_buffers,
                      int32_t peer, uint64_t tag, void* stream, kolo_received* received,
                      kolo_ticket** ticket);

/* --- Tickets ---------------------------------------------------------------------------------- */

/* Writes whether the operation is done, with a result or an error. Never blocks. */
kolo_status kolo_ticket_test(kolo_ticket* ticket, int* done);
/* Waits for at most `timeout_ms`, and writes whether the operation is done. A negative value waits
 * for `operation_timeout`, then returns KOLO_TIMEOUT. Returns the operation's error. Any thread may
 * call it, any number of times. */
kolo_status kolo_ticket_wait(kolo_ticket* ticket, int64_t timeout_ms, int* done);
/* Works like `kolo_ticket_wait`, for an operation in device memory: waits only until its work is
 * enqueued on the device, which is once all ranks have begun it, and makes `stream` wait for that
 * work. Messages, and operations that the host runs, are first done. The buffers stay in use until
 * the ticket is done. */
kolo_status kolo_ticket_wait_on(kolo_ticket* ticket, void* stream, int64_t timeout_ms, int* done);
/* Writes whether `kolo_ticket_wait_on` would not wait. Unless `descriptor` is NULL, also writes a
 * descriptor like that of `kolo_ticket_event`, which becomes readable then. */
kolo_status kolo_ticket_enqueued(kolo_ticket* ticket, int* enqueued, int* descriptor);
/* Writes a descriptor that becomes readable when the operation is done, for poll, epoll or an event
 * loop. The ticket owns it; only poll it. */
kolo_status kolo_ticket_event(kolo_ticket* ticket, int* descriptor);
/* Waits for a receive, and writes its source and number of elements. */
kolo_status kolo_ticket_received(kolo_ticket* ticket, kolo_received* received);
/* Cancels a receive. Unless its message has been received or is in flight, the ticket soon is done
 * with KOLO_CANCELLED, and the next receive gets the message. Wait for the ticket before you free
 * the buffer. Does not block; any thread may call it; does nothing if the receive is done.
 * KOLO_USAGE for other operations. */
kolo_status kolo_ticket_cancel(kolo_ticket* ticket);
/* Releases the ticket. If its operation is not done, the call first ends it, so that nothing uses
 * its buffers afterwards: it waits, and after `operation_timeout` cancels a receive, or for any
 * other operation leaves the job, as by `kolo_abort`. NULL is fine. */
void kolo_ticket_release(kolo_ticket* ticket);

#ifdef __cplusplus
}
#endif

#include <kolo/kolo_c_gradients.h>
#include <kolo/kolo_c_store.h>

#endif
