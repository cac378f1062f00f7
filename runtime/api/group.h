#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "comm/base/reduction.h"
#include "fusion/gradient.h"
#include "runtime/api/gradient_set.h"
#include "runtime/api/ticket.h"
#include "runtime/calls/row_sums/row_sums.h"

namespace kolo {

class GroupState;

/// Settings of a group; equal on all its members.
struct GroupOptions {
  /// Appears in errors, and tells groups of the same ranks apart; may be empty.
  std::string name = {};
  /// Address space of each member's arena in the group, in bytes. Memory is committed when used.
  std::size_t arena_bytes = std::size_t{64} << 20;
  /// Time limit of every wait in the group, once it exists; 0: that of the job.
  std::chrono::milliseconds operation_timeout{0};
};

/// A group of ranks and its collectives. Ranks are numbered from 0 in each group. Groups may
/// overlap. Each group has its own names of operations and its own errors: a stall or failure in
/// one group does not affect others, except that a lost rank ends the job.
///
/// Groups use the connections and threads of the job. Each group reserves a part of its members'
/// arenas until all members have released it.
///
/// Threads: any thread may call. Each rank calls a collective once per name; calls with different
///          names may come in any order.
/// Errors:  after a failure (as opposed to a mismatch of one name) every later call throws the same
///          error, which names the group.
class Group {
 public:
  /// Leaves the other group unusable.
  Group(Group&&) noexcept;
  /// Leaves the other group unusable.
  Group& operator=(Group&&) noexcept;
  /// Releases the group on this rank, without waiting for other members. Its memory is freed when
  /// all members have released it. A group must not outlive its runtime.
  ~Group();

  /// Returns this process's rank in the group, from 0 to size() - 1.
  int rank() const;
  /// Returns the number of ranks in the group.
  int size() const;
  /// Returns the rank in the job of each rank in the group.
  const std::vector<int>& ranks_of_job() const;

  /// Creates a group of the given ranks of this group, in the given order. Only members of the new
  /// group call it. They must create groups of equal ranks and name in the same order; other groups
  /// may be created in any order.
  ///
  /// Errors: UsageError if a rank does not exist or occurs twice, or if this rank is missing;
  ///         KoloError(kMismatch, kResources, kStall), the same on every member that has called;
  ///         KoloError(kTimeout) after `operation_timeout`: repeat the call to go on waiting.
  Group group(const std::vector<int>& ranks, GroupOptions options = {}) const;
  /// Splits this group into one group per color, ordered by key and then by rank. Collective over
  /// this group. A rank with a negative color gets no group.
  std::optional<Group> split(int color, int key, GroupOptions options = {}) const;
  /// Creates a group of the ranks of this group on this rank's node. Collective over these ranks.
  Group node_group(GroupOptions options = {}) const;
  /// Creates a group of the ranks of this group with the same local rank, one per node. Collective
  /// over these ranks.
  Group cross_group(GroupOptions options = {}) const;

  /// Registers a set of gradients that is equal on all ranks, and plans its buckets. Collective;
  /// the set must not outlive the group.
  ///
  /// Errors: KoloError(kMismatch), the same on every rank, naming rank, tensor and both values;
  ///         KoloError(kTimeout) if not all ranks have called within `operation_timeout`. This rank
  ///         may then repeat the call, to go on waiting. Until all ranks have called, a former set
  ///         of this name takes no marks.
  GradientSet register_gradients(std::string_view name, std::vector<GradientSpec> gradients,
                                 GradientOptions options = {});

  // Operations begin at the call and go on in the background. A thread that waits for a ticket runs
  // them itself. A blocking call is `all_reduce("x", x).wait()`.
  //
  // A call takes one tensor or a list. The tensors of a list share one agreement, one plan and
  // their messages; each gets the result that a call with that tensor alone would give. A tensor is
  // either one buffer, which is changed in place, or an input, which is only read, and a result;
  // see `Tensor`. Every buffer says how many elements it holds. A buffer that a rank does not use
  // is ignored and may be empty. All buffers of a call have one dtype and are in memory of one
  // kind, the same on all ranks. A buffer that is written must not overlap another; only a
  // broadcast may list a tensor twice. Lists and counts need not outlive the call; buffers stay
  // valid and untouched until the ticket is done.
  //
  // `name` identifies the operation on all ranks. The first use of a name costs one round of
  // agreement; later uses reuse its plan, and run one after the other. An operation with an empty
  // name is named after its arguments: all ranks must then begin operations with equal arguments in
  // the same order.
  //
  // Buffers in device memory are read and written after the work enqueued on `stream` so far; once
  // the ticket is done, every stream may use the result. Elements stay on the device, except for
  // bitwise operations and where a path through pinned host memory is predicted to be faster.
  //
  // Errors: UsageError at the call; every other error through the ticket.

  /// Combines the input of all ranks into the result of every rank, which has as many elements.
  /// `reduction` is an operation that takes the dtype (see `takes`), and may scale contributions
  /// and results. It is equal on all ranks, except for the scale of a premultiplied sum, which may
  /// differ between ranks. Sums have the same bits on every run.
  [[nodiscard]] Ticket all_reduce(std::string_view name, const Tensors& tensors,
                                  const Reduction& reduction = ReduceOp::kSum,
                                  NativeStream stream = {});
  /// Copies the input of rank `root` to the result of all ranks. Either all ranks pass one buffer,
  /// or all pass an input and a result; only the root's input is read.
  [[nodiscard]] Ticket broadcast(std::string_view name, const Tensors& tensors, int root,
                                 NativeStream stream = {});

  // Operations that take a reduction accept the dtypes of that reduction. The operations below
  // without a reduction copy elements bit by bit and accept any dtype.

  /// Combines the input of all ranks into the result of rank `root`, which has as many elements. In
  /// place (on all ranks or on none) the buffers of other ranks do not change.
  [[nodiscard]] Ticket reduce(std::string_view name, const Tensors& tensors, int root,
                              const Reduction& reduction = ReduceOp::kSum,
                              NativeStream stream = {});
  /// Combines the input of all ranks, which holds the parts of all ranks in rank order, and writes
  /// part r to the result of rank r. In place the buffer holds all parts, and only this rank's part
  /// changes.
  [[nodiscard]] Ticket reduce_scatter(std::string_view name, const Tensors& tensors,
                                      const Reduction& reduction = ReduceOp::kSum,
                                      NativeStream stream = {});
  /// Copies the input of all ranks, in rank order, to the result of every rank. In place (on all
  /// ranks or on none) this rank's part already is at its offset in the buffer.
  [[nodiscard]] Ticket all_gather(std::string_view name, const Tensors& tensors,
                                  NativeStream stream = {});
  /// Copies the input of all ranks, in rank order, to the result of rank `root`. A root in place
  /// passes only the result, in which its own part already is at its offset. The other ranks pass
  /// only their input.
  [[nodiscard]] Ticket gather(std::string_view name, const Tensors& tensors, int root,
                              NativeStream stream = {});
  /// Copies part r of the input of rank `root`, which holds the parts of all ranks in rank order,
  /// to the result of rank r. A root in place passes only the input, in which its own part stays.
  /// The other ranks pass only their result.
  [[nodiscard]] Ticket scatter(std::string_view name, const Tensors& tensors, int root,
                               NativeStream stream = {});
  /// Copies part r of the input of rank s to part s of the result of rank r. Without counts all
  /// parts have one size; otherwise `counts[s * size() + r]`, equal on all ranks, is the number of
  /// elements that rank s sends to rank r. In place (on all ranks or on none), any two ranks send
  /// each other equally many elements, and Kolo sends them from a copy, whose memory it keeps for
  /// the next use of the name.
  [[nodiscard]] Ticket all_to_all(std::string_view name, const Tensors& tensors,
                                  NativeStream stream = {});

  /// Sums rows of tables over all ranks, such as gradients of embeddings. For each table a rank
  /// passes any number of row indices, in any order and perhaps repeated, and one row of
  /// `table.width` elements per index. `Ticket::sums` has one result per table: either the sorted
  /// indices that any rank passed, with one row per index, or the whole table. If `options` leave
  /// the choice, all ranks choose the form that the cost model predicts to be faster for this call.
  /// All tables of a call have one dtype and are in memory of one kind. They share their exchanges,
  /// except that in device memory each table exchanges its rows separately. `memory` passes former
  /// results, whose memory is reused; a UsageError leaves them as they are.
  ///
  /// In the call, each rank adds its own rows of equal index in their order, and rounds the sums to
  /// the dtype. Later the thread that drives Kolo adds these sums in rank order, and rounds once
  /// more. Results have the same bits on every run. 16-bit floats are added in float32. A table
  /// that is exchanged whole is summed as by `all_reduce`.
  ///
  /// Rows may be in device memory (`RowTable::memory`); their sums then are, too. The device adds
  /// these rows, and NCCL sends them. Indices are in host memory. Rows must stay valid until the
  /// ticket is done; indices need not.
  ///
  /// Errors: UsageError at the call if an index is outside the table, if the dtype is not numeric,
  ///         or for device memory without a device; KoloError(kMismatch), the same on every rank,
  ///         if tables, operation or options differ.
  /// Cost:   a rank sends each of its distinct rows once and receives each row of the result once.
  ///         There are three small exchanges, and two pairs of operations that are planned for the
  ///         numbers of rows of this call. A table that is exchanged whole takes two small
  ///         exchanges and an all-reduce whose plan is kept.
  [[nodiscard]] Ticket sparse_all_reduce(std::string_view name, const OneOrMore<TableRows>& tables,
                                         const RowOptions& options = {},
                                         std::vector<RowSums>&& memory = {},
                                         NativeStream stream = {});

  /// The ticket is done when every rank has called `barrier`.
  [[nodiscard]] Ticket barrier();

  // Messages between two ranks, of any dtype, need no other rank and no name. Messages from one
  // rank to another with one tag are received in the order in which they were sent. A rank may send
  // to itself. Streams and lifetime of buffers are as above.
  //
  // A message has one buffer or several, of one dtype or of several, in memory of one kind. A
  // receive of several buffers has as many as the send, each of equal dtype and number of elements;
  // any difference is a mismatch that quotes both lists, and nothing is written. Unless the buffers
  // are contiguous, each end copies them to or from temporary memory of the message's size, in the
  // thread that drives Kolo.

  /// Sends `buffers` to rank `peer`. The ticket is done when they may be reused: at once for a
  /// small message (up to 4 KiB or more, while the receiver stores less than 1 MiB of small
  /// messages without a receive), otherwise only after the receiver has passed a buffer for it.
  ///
  /// Errors: UsageError at the call. KoloError(kMismatch), the same on both ranks, if the message
  ///         is longer than the buffer of its receive or of another dtype; if the ticket is already
  ///         done, the sender logs it. Later messages are not affected. When the runtime closes,
  ///         the receiver logs messages that it has never received.
  [[nodiscard]] Ticket send(const Buffers& buffers, int peer, std::uint64_t tag = 0,
                            NativeStream stream = {});
  /// Receives a message with this tag into `buffers` from rank `peer`, or from any rank if `peer`
  /// is `kAnyRank`. A single buffer may be longer than the message. `Ticket::received` returns the
  /// source and the number of elements.
  ///
  /// Errors: as for `send`; KoloError(kPeerLost) if a rank that may be the source is lost;
  ///         KoloError(kCancelled) after `Ticket::cancel`; KoloError(kTimeout) after
  ///         `operation_timeout`, naming peer and tag.
  /// Cost:   while a receive from any rank waits, liveness of all ranks is checked.
  [[nodiscard]] Ticket recv(const Buffers& buffers, int peer, std::uint64_t tag = 0,
                            NativeStream stream = {});

  /// Requires that from now on all ranks begin the collectives of this group, named or not, in the
  /// same order. If the n-th collectives of two ranks differ, they fail with KoloError(kMismatch)
  /// within a few `mismatch_after`, even if other threads might still submit the missing
  /// collective; the error quotes both. All ranks call this function at the same point, while no
  /// collective of the group is in flight. The order of gradient sets and messages stays free.
  ///
  /// Cost: none while collectives make progress.
  void keep_order();

  /// Called by a rank that has run out of data. Runs the operations of other ranks without data
  /// until all ranks have joined. Returns the rank that joined last (the greatest one if several
  /// joined last), equal on all ranks. Afterwards all ranks may begin operations again.
  ///
  /// A joined rank contributes elements that change no result to reductions, gradient sets and
  /// barriers: zeros, or no rows, in sums and averages. Averages still divide by the number of all
  /// ranks unless the set has another divisor. The joined rank's gradients are absent: their memory
  /// gets the combined values, and their residuals are sent. The rank discards the result of a
  /// broadcast or scatter.
  ///
  /// Other operations need data of the joined rank (all_gather, gather, all_to_all, operations with
  /// that rank as root, new gradient sets, `close`), memory of its own for a set that it has
  /// destroyed, or a device that it does not have. They fail on all ranks with the same
  /// KoloError(kMismatch), which names operation and rank; the name or set can be used again, as
  /// after any mismatch. Creating a group with the joined rank fails in the same way.
  ///
  /// A message fails with the same error if only joined ranks could send or receive it. Sends and
  /// receives that began before the join still complete.
  ///
  /// Threads: no other thread uses the group until it returns.
  /// Errors:  KoloError(kUsage) in the middle of an iteration of a set, and after `keep_order`.
  ///          KoloError(kTimeout) if no rank has begun an operation for `operation_timeout`: repeat
  ///          the call to go on waiting; every other call is a UsageError until then.
  /// Cost:    while some ranks have joined, each use of a name and each bucket sends at most two
  ///          more small frames per edge of the tree of ranks; otherwise none.
  int join();

  /// Returns the payload bytes that this rank has sent to other nodes in this group's operations.
  std::uint64_t network_bytes_sent() const;

  /// Waits until all members close the group, then ends it. This rank can begin no operation after
  /// the call. Its operations in flight end first; operations of other ranks that need this rank
  /// fail at once with kMismatch, and the error says that the rank has closed. Collective and
  /// idempotent. Later calls fail with kShutdown.
  void close();

 protected:
  friend class ParameterStore;

  explicit Group(std::shared_ptr<GroupState> state);

  std::shared_ptr<GroupState> state_;
};

}  // namespace kolo
