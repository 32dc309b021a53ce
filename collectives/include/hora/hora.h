// SPDX-License-Identifier: Apache-2.0
/* hora.h: the C interface of Hora's collective runtime, libhora.
 *
 * Plain pointers, shapes, dtypes, device ids: no framework and no C++ type crosses this line, so
 * one build serves every framework version and every language that can call C.
 *
 * Model (the Horovod programming model, Sergeev & Del Balso, arXiv:1802.05799): every rank submits
 * named tensors, in any order and from any thread; an operation runs once all ranks of its process
 * set have submitted a tensor of that name with matching parameters. A mismatch is an error on all
 * ranks of the set, never a hang. A rank that dies turns into HORA_ABORTED on the others.
 *
 * Threads: every function may be called from any thread, except that hora_init, hora_shutdown and
 * hora_reset must not run at the same time as each other.
 * After fork() without exec the child may ask for the topology; everything else is an error there.
 *
 * Compatibility: structs that callers fill begin with struct_size = sizeof(the struct). Fields are
 * only ever added at the end. Enumerators keep their values.
 */
#ifndef HORA_HORA_H
#define HORA_HORA_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define HORA_API __attribute__((visibility("default")))
#else
#define HORA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HORA_ABI_VERSION 1

/* NOLINTBEGIN(modernize-use-using, readability-identifier-naming): this is C. */

/* What a call may return. */
typedef enum hora_status {
  HORA_OK = 0,
  HORA_IN_PROGRESS = 1,      /* hora_poll: not done yet */
  HORA_INVALID_ARGUMENT = 2, /* this rank's own mistake; nothing was sent */
  HORA_NOT_INITIALIZED = 3,
  HORA_MISMATCH = 4,    /* the ranks disagree; same text on all of them, naming both sides */
  HORA_ABORTED = 5,     /* a peer died or shut down, or this process did; the world is unusable */
  HORA_TIMED_OUT = 6,   /* the text says what the call waited for, and for which ranks */
  HORA_UNSUPPORTED = 7, /* no backend can do this here; the text says why */
  HORA_INTERNAL = 8,
  HORA_REMOVED = 9 /* hora_init, hora_reset: the elastic job goes on without this process */
} hora_status;

/* Element types; 0..9 as in Horovod's wire format. */
typedef enum hora_dtype {
  HORA_UINT8 = 0,
  HORA_INT8 = 1,
  HORA_UINT16 = 2,
  HORA_INT16 = 3,
  HORA_INT32 = 4,
  HORA_INT64 = 5,
  HORA_FLOAT16 = 6, /* IEEE 754 binary16 */
  HORA_FLOAT32 = 7,
  HORA_FLOAT64 = 8,
  HORA_BOOL = 9, /* one byte, 0 or 1; sum = or, product = and, min = and, max = or */
  HORA_BFLOAT16 = 10
} hora_dtype;

typedef enum hora_reduce_op {
  HORA_AVERAGE = 0, /* sum / size of the process set; integers truncate toward zero */
  HORA_SUM = 1,
  HORA_ADASUM = 2,
  HORA_MIN = 3,
  HORA_MAX = 4,
  HORA_PRODUCT = 5
} hora_reduce_op;

typedef enum hora_operation {
  HORA_ALLREDUCE = 0,
  HORA_ALLGATHER = 1,
  HORA_BROADCAST = 2,
  HORA_JOIN = 3,
  HORA_ALLTOALL = 5,
  HORA_BARRIER = 6,
  HORA_REDUCESCATTER = 7
} hora_operation;

#define HORA_CPU_DEVICE (-1)
#define HORA_GLOBAL_PROCESS_SET 0

/* A dense, row-major tensor. ndim 0 is a scalar (one element). data may be NULL when empty. */
typedef struct hora_tensor {
  void* data;
  const int64_t* shape; /* ndim extents, each >= 0; read during the call only */
  int32_t ndim;
  int32_t dtype;  /* hora_dtype */
  int32_t device; /* HORA_CPU_DEVICE or a CUDA device ordinal; where data lies */
  int32_t reserved;
} hora_tensor;

/* clang-format off: it would wrap the table.
 *
 * One operation on one tensor.
 *
 *   operation      input                 output given by the caller        result
 *   allreduce      any shape             same shape and dtype; may be      -
 *                                        the input itself (in place)
 *   broadcast      any shape             same; in place allowed. Off       -
 *                                        root the input is not read
 *   allgather      ndim >= 1, first      data = NULL                       shape (sum of dim 0, ...)
 *                  extent may differ
 *   alltoall       ndim >= 1             data = NULL                       received rows, and
 *                                                                          hora_received_splits
 *   reducescatter  ndim >= 1             data = NULL                       this rank's rows: the first
 *                                                                          dim0 % size ranks get one more
 *   barrier, join  none                  none                              join: hora_last_joined
 *
 * Memory of input and output must stay valid until the handle is done. Where output.data is NULL
 * the library allocates; the result belongs to the handle (hora_result) and dies with it. */
/* clang-format on */
typedef struct hora_request {
  uint32_t struct_size;
  int32_t operation; /* hora_operation */
  const char* name;  /* UTF-8, copied; unique among the requests in flight of one process set.
                        NULL for barrier and join */
  hora_tensor input;
  hora_tensor output;
  int32_t process_set;   /* HORA_GLOBAL_PROCESS_SET, or an id of hora_process_set_add */
  int32_t reduce_op;     /* hora_reduce_op: allreduce, reducescatter */
  int32_t root_rank;     /* broadcast: a global rank */
  int32_t priority;      /* larger runs first among those that are ready */
  double prescale;       /* applied before the reduction; 1.0 = none */
  double postscale;      /* applied after it; 1.0 = none */
  const int64_t* splits; /* alltoall: rows for each rank of the set, or NULL for equal parts;
                            copied */
  int32_t split_count;
  int32_t reserved;
  void* stream; /* CUDA: the stream (cudaStream_t) that produces the input and will consume the
                   output; NULL = the default stream */
} hora_request;

/* Identifies an operation that is in flight, or done and not released; never 0. */
typedef int64_t hora_handle;

/* --- life cycle ---------------------------------------------------------------------------- */

typedef struct hora_options {
  uint32_t struct_size;
  /* Static process sets, agreed at start: set i has the global ranks
   * process_set_ranks[sum of sizes before i ...]; ids are 1, 2, ... in this order. */
  const int32_t* process_set_ranks;
  const int32_t* process_set_sizes;
  int32_t process_set_count;
  int32_t reserved;
  /* size > 0: not the world that the environment describes, but one of processes that the program
   * has chosen, such as those of an MPI communicator. This process is `rank` of `size`; allgather
   * gives `bytes` bytes of each of them to all, by rank, within timeout_ms (0: done). hora_init
   * calls it a few times, on its own thread. It must not throw, nor call functions of this header.
   */
  int32_t rank;
  int32_t size;
  int (*allgather)(void* context, const void* data, size_t bytes, void* received,
                   int64_t timeout_ms);
  void* context; /* its first argument */
} hora_options;

/* Joins the job that the environment describes (docs/reference/environment.md); without one this is
 * a world of one. Blocks until all ranks have met, at most HOROVOD_GLOO_TIMEOUT_SECONDS (30) from
 * rank 0's call on; if some do not come, all that have come get an error that names them.
 * A second call while initialised is HORA_OK and changes nothing. options may be NULL. */
HORA_API hora_status hora_init(const hora_options* options);
/* Leaves the job. Operations in flight end with HORA_ABORTED, here and on the other ranks. */
HORA_API hora_status hora_shutdown(void);
/* shutdown + init. In an elastic job every init but the first waits for a place in the next epoch,
 * as long as it takes. */
HORA_API hora_status hora_reset(void);
/* Elastic jobs: waits until the launcher reports a change of hosts, at most timeout_ms. *changes is
 * 0 if there was none, else bits: 1, hosts have left; 2, hosts have joined. From any thread. */
HORA_API hora_status hora_wait_host_update(int64_t timeout_ms, int32_t* changes);
HORA_API int hora_is_initialized(void);

/* The text of the last error of the calling thread; "" when none. Valid until its next hora call.
 */
HORA_API const char* hora_last_error(void);
HORA_API const char* hora_status_name(hora_status status);
/* "0.1.0" */
HORA_API const char* hora_version(void);
HORA_API int hora_abi_version(void);

/* --- topology; each is -1 before hora_init ------------------------------------------------- */

HORA_API int hora_rank(void);
HORA_API int hora_size(void);
HORA_API int hora_local_rank(void);
HORA_API int hora_local_size(void);
HORA_API int hora_cross_rank(void);
HORA_API int hora_cross_size(void);
/* 1 when every host has the same number of ranks. */
HORA_API int hora_is_homogeneous(void);

/* --- operations ---------------------------------------------------------------------------- */

/* Submits `count` requests at once and fills handles[0..count). Either all are accepted or none.
 * count > 1 makes them a group: the operations of a group run together or not at all, and all
 * ranks must submit the same group. Does not wait. */
HORA_API hora_status hora_submit(const hora_request* requests, int32_t count, hora_handle* handles);

/* Submits one request and waits for it, as hora_submit and hora_wait do, but faster where the
 * operation is small and has come before, by the same name. *handle gets the handle of an operation
 * that is in flight after HORA_TIMED_OUT, or has a result (allgather, alltoall, reducescatter,
 * join); it is to be released. Else 0. It may be NULL where neither can be. */
HORA_API hora_status hora_run(const hora_request* request, int64_t timeout_ms, hora_handle* handle);

/* HORA_IN_PROGRESS, or the outcome. Does not wait. */
HORA_API hora_status hora_poll(hora_handle handle);
/* Waits for the outcome: timeout_ms < 0 for ever (a lost peer still ends the wait), else this long
 * and then HORA_TIMED_OUT, with the operation still in flight. The calling thread may do the work
 * while it waits, and finishes an operation that it has begun, also past that time. For a CUDA
 * tensor "done" means that the work was ordered on the request's stream, as with any CUDA library.
 */
HORA_API hora_status hora_wait(hora_handle handle, int64_t timeout_ms);
/* The error text of a finished handle; "" when it succeeded. Valid until it is released. */
HORA_API const char* hora_error(hora_handle handle);
/* The result of a finished allgather, alltoall or reducescatter. data and shape are valid until
 * the handle is released. */
HORA_API hora_status hora_result(hora_handle handle, hora_tensor* result);
/* alltoall: rows received from each rank of the set; count = its size. Valid until released. */
HORA_API hora_status hora_received_splits(hora_handle handle, const int64_t** splits,
                                          int32_t* count);
/* join: the global rank that joined last. -1 when the handle is not a finished join. */
HORA_API int hora_last_joined(hora_handle handle);
/* Frees the handle and its result; a handle in flight when its operation is done. */
HORA_API void hora_release(hora_handle handle);

/* --- prepared operations ------------------------------------------------------------------- */

/* A plan is a list of requests that is prepared once and started many times, such as the gradients
 * of a training step. (MPI calls these persistent requests.) A start checks and looks up nothing.
 * Reductions of a plan that differ only in name and shape travel as one operation, up to the fusion
 * threshold together.
 *
 *   hora_request requests[2] = {weights, biases}; // allreduces, filled in as for hora_submit
 *   hora_plan* plan = NULL;
 *   if (hora_prepare(requests, 2, &plan) != HORA_OK) fail(hora_last_error());
 *   for (int step = 0; step < steps; ++step) {
 *     compute_gradients(); // into the memory that the requests name
 *     if (hora_start(plan) != HORA_OK) fail(hora_last_error());
 *     if (hora_plan_wait(plan, -1) != HORA_OK) fail(hora_last_error());
 *     update_weights();
 *   }
 *   hora_plan_free(plan);
 *
 * What the ranks must have in common: all ranks of the process set prepare the same requests in the
 * same order, and start them equally often. Names and numbers of elements are compared, shapes are
 * not. A plan of one request may match a rank that submits that request instead. If a rank submits
 * the tensors of a larger plan one by one, or prepares another plan that begins with the same name,
 * the operation ends with HORA_MISMATCH on all ranks, and so do the tensors of the plan that wait.
 *
 * Order: plans and submissions may be in flight at the same time, in any order on each rank.
 *
 * Results have the same bits as those of hora_submit in deterministic mode, and always with the
 * shared memory backend. The other backends add in an order that depends on what shares a step.
 *
 * Threads: one call on a plan at a time; different plans are independent.
 *
 * Lifetime: a plan belongs to its world. hora_shutdown and hora_reset end what is in flight with
 * HORA_ABORTED; the plan can then only be freed. */
typedef struct hora_plan hora_plan;

/* Prepares `count` requests, each an allreduce or a broadcast, no name twice; others are
 * HORA_INVALID_ARGUMENT. Names, shapes and fields are copied. Sends nothing. Memory of inputs and
 * outputs is that of the requests at each start. */
HORA_API hora_status hora_prepare(const hora_request* requests, int32_t count, hora_plan** plan);
/* Submits the operations of the plan. Does not wait. HORA_INVALID_ARGUMENT while the last start is
 * in flight, or another operation of such a name. */
HORA_API hora_status hora_start(hora_plan* plan);
/* HORA_IN_PROGRESS, or the outcome of the last start: that of the first operation that failed. */
HORA_API hora_status hora_plan_poll(hora_plan* plan);
/* As hora_wait, for all operations of the last start. */
HORA_API hora_status hora_plan_wait(hora_plan* plan, int64_t timeout_ms);
/* hora_start and hora_plan_wait in one, faster for a plan that is one small operation. After
 * HORA_TIMED_OUT the operations are in flight. */
HORA_API hora_status hora_plan_run(hora_plan* plan, int64_t timeout_ms);
/* Frees the plan, in flight when its operations are done; their memory must stay until then. NULL
 * does nothing. */
HORA_API void hora_plan_free(hora_plan* plan);

/* --- inside of compiled programs ----------------------------------------------------------- */

/* A handler of XLA's typed foreign function interface, for programs on CPUs: runs the operations
 * that the attributes of the call encode (hora/xla.py of the Python packages does that) on the
 * buffers of the call, and waits for them. The argument is XLA's call frame; the result is NULL, or
 * XLA's error. Not to be called by others than XLA. */
HORA_API void* hora_xla_call(void* call_frame);

/* --- process sets -------------------------------------------------------------------------- */

/* Makes a set of the given global ranks; all ranks of the world must call it with the same ranks.
 * Blocks until they have. *id gets the new set's id. */
HORA_API hora_status hora_process_set_add(const int32_t* ranks, int32_t count, int32_t* id);
/* The set of the given global ranks, which is made if there is none. Other ranks need not call it:
 * their runtimes take part by themselves. Blocks until the set is there. */
HORA_API hora_status hora_process_set_of(const int32_t* ranks, int32_t count, int32_t* id);
/* All ranks of the world must call it. Operations in flight in the set end with HORA_ABORTED. */
HORA_API hora_status hora_process_set_remove(int32_t id);
/* Size of the set, this process's rank in it (-1: not a member); -1 when there is no such set. */
HORA_API int hora_process_set_size(int32_t id);
HORA_API int hora_process_set_rank(int32_t id);
/* Number of sets, their ids (ids may be NULL), and the ranks of one (ranks may be NULL); each
 * answers the count, -1 when there is no such set. */
HORA_API int hora_process_set_ids(int32_t* ids, int32_t capacity);
HORA_API int hora_process_set_ranks(int32_t id, int32_t* ranks, int32_t capacity);

/* --- timeline, introspection --------------------------------------------------------------- */

/* Records what happens to every tensor from now on, as a Chrome trace (docs/reference/timeline.md).
 * "{rank}" in the path stands for the rank: every rank that calls this writes a file of its own.
 * Without it rank 0 writes, and the call does nothing elsewhere. An old file is replaced. A
 * timeline that is being written, by an earlier call or by HOROVOD_TIMELINE, ends first. */
HORA_API hora_status hora_timeline_start(const char* path, int mark_cycles);
/* Ends the recording; when this returns the file is complete. HORA_OK also when there was none. */
HORA_API hora_status hora_timeline_stop(void);

/* A JSON text about this library and this process: version, backends (built, usable, why not),
 * the selection table, settings. Valid until the calling thread's next hora call. */
HORA_API const char* hora_describe(void);
/* 1 when the backend ("tcp", "gloo", "mpi", "ccl", "nccl", "shm", "self") was built in or can be
 * loaded. */
HORA_API int hora_backend_built(const char* name);
/* 1 when it is in use in this job. */
HORA_API int hora_backend_enabled(const char* name);

/* NOLINTEND(modernize-use-using, readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif /* HORA_HORA_H */
