#pragma once

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
  /// Address space of each member's arena in the group. Memory is committed when it is used.
  std::size_t arena_bytes = std::size_t{64} << 20;
};

/// A group of ranks and its collectives. Ranks are numbered from 0 in each group. Groups may
/// overlap. Each has its own names of operations, and its own errors: a stall or failure in it does
/// not affect other groups, except that a lost rank ends the job.
///
/// Groups use connections and threads of the job. Each takes a part of the arena of its members,
/// which is given back when all have released the group.
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
  /// Releases the group once all members have done so, and waits for none of them. A group must not
  /// outlive its runtime.
  ~Group();

  /// This process's rank in the group, from 0 to size() - 1.
  int rank() const;
  /// Number of ranks in the group.
  int size() const;
  /// Rank in the job of each rank in the group.
  const std::vector<int>& ranks_of_job() const;

  /// Creates a group of these ranks of this group, in this order. Only its members call. They
  /// create groups of the same ranks and name in the same order, all others in any order.
  ///
  /// Errors: UsageError for ranks that do not exist, occur twice or leave out this one;
  ///         KoloError(kMismatch, kResources, kStall), the same on every member that has called;
  ///         KoloError(kTimeout) after `operation_timeout`: repeat the call to go on waiting.
  Group group(const std::vector<int>& ranks, GroupOptions options = {}) const;
  /// Splits this group into one for each color, ordered by key and then by rank. Collective over
  /// this group. A rank with a negative color gets none.
  std::optional<Group> split(int color, int key, GroupOptions options = {}) const;
  /// Creates a group of the ranks of this group on this rank's node. Collective over those.
  Group node_group(GroupOptions options = {}) const;
  /// Creates a group of the ranks of this group with the same local rank, one per node. Collective
  /// over those.
  Group cross_group(GroupOptions options = {}) const;

  /// Agrees on a set of gradients with all ranks and plans its buckets. Collective; the set must
  /// not outlive the group.
  ///
  /// Errors: KoloError(kMismatch), the same on every rank, naming rank, tensor and both values;
  ///         KoloError(kTimeout) if not all ranks have called within `operation_timeout`. This rank
  ///         alone may then repeat the call, which goes on waiting.
  GradientSet register_gradients(std::string_view name, std::vector<GradientSpec> gradients,
                                 GradientOptions options = {});

  // Operations begin at the call and go on in the background; a thread that waits for the ticket
  // drives them itself. A blocking call is `all_reduce("x", x).wait()`.
  //
  // A call takes one tensor or a list. A list has one agreement, one plan and common messages, and
  // each of its tensors gets the result that a call with it alone would give. A tensor is either
  // one buffer, which is changed in place, or an input, which is only read, and a result; see
  // `Tensor`. Every buffer says how many elements it holds. A buffer that a rank does not use is
  // ignored and may be empty. All buffers of a call have one dtype and are in memory of one kind,
  // the same on all ranks. A buffer that is written overlaps no other; only a broadcast may list a
  // tensor twice. Lists and counts need not outlive the call; buffers stay valid and untouched
  // until the ticket is done.
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
  /// and results. It is equal on all ranks, except for the scale of a premultiplied sum, which is
  /// each rank's own. Sums have the same bits on every run.
  [[nodiscard]] Ticket all_reduce(std::string_view name, const Tensors& tensors,
                                  const Reduction& reduction = ReduceOp::kSum,
                                  NativeStream stream = {});
  /// Copies the input of rank `root` to the result of all ranks. Either all ranks pass one buffer,
  /// or all pass an input and a result; only the root's input is read.
  [[nodiscard]] Ticket broadcast(std::string_view name, const Tensors& tensors, int root,
                                 NativeStream stream = {});

  // Of the operations below, those that reduce take the dtypes of their reduction, the others any
  // dtype. Those that do not reduce copy elements bit by bit.

  /// Combines the input of all ranks into the result of rank `root`, which has as many elements. In
  /// place (on all ranks or on none) the buffers of other ranks stay as they are.
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
  /// ranks or on none) this rank's part already lies at its offset in the buffer.
  [[nodiscard]] Ticket all_gather(std::string_view name, const Tensors& tensors,
                                  NativeStream stream = {});
  /// Copies the input of all ranks, in rank order, to the result of rank `root`. In place at the
  /// root, its only buffer is the result, where its own part already lies at its offset. The only
  /// buffer of another rank is its input.
  [[nodiscard]] Ticket gather(std::string_view name, const Tensors& tensors, int root,
                              NativeStream stream = {});
  /// Copies part r of the input of rank `root`, which holds the parts of all ranks in rank order,
  /// to the result of rank r. In place at the root, its only buffer is the input, where its own
  /// part stays. The only buffer of another rank is its result.
  [[nodiscard]] Ticket scatter(std::string_view name, const Tensors& tensors, int root,
                               NativeStream stream = {});
  /// Copies part r of the input of rank s to part s of the result of rank r. Without counts all
  /// parts are equal; with them, `counts[s * size() + r]`, the same on all ranks, is the number of
  /// elements that rank s has for rank r. In place (on all ranks or on none) any two ranks exchange
  /// equally many elements both ways, and the parts for other ranks are sent from a copy, whose
  /// memory is kept with the name.
  [[nodiscard]] Ticket all_to_all(std::string_view name, const Tensors& tensors,
                                  NativeStream stream = {});

  /// Sums rows of tables over all ranks: the gradients of embeddings. In each table a rank has any
  /// number of row indices, in any order and perhaps repeated, and a row of `table.width` elements
  /// for each. `Ticket::sums` has one result for each table: either the sorted indices that some
  /// rank had, with a row for each, or the whole table. If `options` leave a choice, the cost model
  /// compares both ways for the numbers of rows of this call; all ranks choose alike. Tables of one
  /// call have one dtype, are in memory of one kind, and share exchanges; in device memory they
  /// share all but those of rows. The memory of former results is reused.
  ///
  /// At the call, a rank adds up its own rows of one index in their order, rounded to the dtype.
  /// The thread that drives Kolo adds the sums of the ranks in rank order, rounded once more; they
  /// have the same bits on every run. 16-bit floats are added in float32. A table that is exchanged
  /// whole is summed as by `all_reduce`.
  ///
  /// Rows may be in device memory (`RowTable::memory`), and their sum then is, too; indices are in
  /// host memory. The device adds the rows up, and its library moves them. Rows stay valid until
  /// the ticket is done; indices need not.
  ///
  /// Errors: UsageError at the call, for an index outside the table, naming it, for a dtype that is
  ///         not a number, and for device memory without a device; KoloError(kMismatch), the same
  ///         on every rank, if tables, operation or options differ.
  /// Cost:   a rank sends each of its distinct rows once and receives each row of the result once.
  ///         There are three small exchanges, and two pairs of operations that are planned for the
  ///         numbers of rows of this call. A table that is exchanged whole takes two small
  ///         exchanges and an all-reduce whose plan is kept.
  [[nodiscard]] Ticket sparse_all_reduce(std::string_view name, const OneOrMore<TableRows>& tables,
                                         const RowOptions& options = {},
                                         std::vector<RowSums> memory = {},
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
  /// small message (at least up to 4 KiB, while the receiver holds less than 1 MiB of such messages
  /// that it has not received), else not before the receiver has a buffer for it.
  ///
  /// Errors: UsageError at the call. KoloError(kMismatch), the same on both ranks, if the message
  ///         is longer than the buffer of its receive or of another dtype; if the ticket is already
  ///         done, the sender logs it. Later messages are not affected. When the runtime closes,
  ///         the receiver logs messages that it has never received.
  [[nodiscard]] Ticket send(const Buffers& buffers, int peer, std::uint64_t tag = 0,
                            NativeStream stream = {});
  /// Receives a message with this tag into `buffers` from rank `peer`; from whichever rank sends
  /// first if `peer` is `kAnyRank`. A single buffer may be longer than the message.
  /// `Ticket::received` tells the source and the number of elements.
  ///
  /// Errors: as for `send`; KoloError(kPeerLost) if a rank that may be the source is lost;
  ///         KoloError(kCancelled) after `Ticket::cancel`; KoloError(kTimeout) after
  ///         `operation_timeout`, naming peer and tag.
  /// Cost:   while a receive from any rank waits, liveness of all ranks is checked.
  [[nodiscard]] Ticket recv(const Buffers& buffers, int peer, std::uint64_t tag = 0,
                            NativeStream stream = {});

  /// From now on all ranks begin their collectives in this group, named or not, in one order, as in
  /// programs that match the n-th call of each rank. If the n-th collectives of ranks differ, they
  /// get a KoloError(kMismatch) within a few `mismatch_after`; it quotes both, even if other
  /// threads might still submit the missing one. All ranks call it at the same point, while none
  /// has a collective of the group in flight. Gradient sets and messages are not counted.
  ///
  /// Cost: none while collectives make progress.
  void keep_order();

  /// This rank has run out of data: it takes part in the operations of the other ranks until all
  /// have joined. Returns the rank that joined last (the greatest of several at the same time), the
  /// same on all ranks. Afterwards all ranks may go on.
  ///
  /// A joined rank contributes elements that change no result to reductions, gradient sets and
  /// barriers: zeros, or no rows, in sums and averages. Averages still divide by all ranks unless
  /// the set has another divisor. Its gradients are absent: their memory gets the combined values,
  /// and their residuals are sent. It discards the result of a broadcast or scatter.
  ///
  /// Other operations would need data of the rank (all_gather, gather, all_to_all, one with the
  /// rank as root, new gradient sets, `close`) or a device that it does not have. All ranks then
  /// get the same KoloError(kMismatch), which names operation and rank; for names and sets it is a
  /// mismatch like any other. Ranks that create a group of this one with the joined rank get that
  /// error, too.
  ///
  /// A message that only joined ranks could send or receive fails with such an error. Messages that
  /// were sent, and receives that were begun, before the join still complete.
  ///
  /// Threads: no other thread uses the group until it returns.
  /// Errors:  KoloError(kUsage) in the middle of an iteration of a set, and after `keep_order`.
  ///          KoloError(kTimeout) if no rank has begun an operation for `operation_timeout`: repeat
  ///          the call to go on waiting; every other call is a UsageError until then.
  /// Cost:    while some ranks have joined, each use of a name and each bucket costs at most two
  ///          small frames more per edge of the tree of ranks; else nothing.
  int join();

  /// Payload bytes that this rank has sent to other nodes so far, in this group's own operations.
  std::uint64_t network_bytes_sent() const;

  /// Waits until all members close the group, then ends it. From this call on the rank begins no
  /// operation. Operations that it has begun end first, as in the destructor; operations of other
  /// ranks that wait for it fail at once with kMismatch, which says that the rank has closed.
  /// Collective and idempotent. Later calls fail with kShutdown.
  void close();

 protected:
  explicit Group(std::shared_ptr<GroupState> state);

  std::shared_ptr<GroupState> state_;
};

}  // namespace kolo
