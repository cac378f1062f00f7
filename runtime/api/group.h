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
#include "runtime/calls/rows/row_sums.h"

namespace kolo {

class MemberState;

/// Settings of a group; the same on all its members.
struct GroupOptions {
  /// For errors, and to tell groups of the same ranks apart; may be empty.
  std::string name = {};
  /// Address space of each member's arena in the group. Memory is committed when it is used.
  std::size_t arena_bytes = std::size_t{64} << 20;
};

/// A group of ranks and its collectives. Ranks are numbered from 0 in each group. A group has names
/// and errors of its own: names are those of other operations elsewhere, and whatever stalls or
/// fails in it holds up nothing else, unless a rank is lost, which ends the job. Groups may
/// overlap.
///
/// Groups use connections and threads of the job: each costs a part of the arena of its members,
/// which is given back when all have released it.
///
/// Threads: any thread may call; each rank calls a collective once per name, and calls with
///          different names may come in any order.
/// Errors:  after a failure (as opposed to a mismatch of one name) every later call throws the same
///          error, which names the group.
class Group {
 public:
  /// Leaves the other group unusable.
  Group(Group&&) noexcept;
  /// Leaves the other group unusable.
  Group& operator=(Group&&) noexcept;
  /// Releases the group once all members have done so, and waits for none of them. A group must not
  /// outlive the runtime.
  ~Group();

  /// This process's rank in the group, from 0 to size() - 1.
  int rank() const;
  /// Number of ranks in the group.
  int size() const;
  /// Ranks of the job, by rank in the group.
  const std::vector<int>& ranks_of_job() const;

  /// Founds a group of these ranks of this group, in this order. Called by its members only, which
  /// found groups of the same ranks and name in the same order, and all others in any order.
  ///
  /// Errors: UsageError for ranks that do not exist, come twice or leave out this one;
  ///         KoloError(kMismatch, kResources, kStall), the same on every member that came;
  ///         KoloError(kTimeout) after `operation_timeout`: a repeated call goes on waiting.
  Group group(const std::vector<int>& ranks, GroupOptions options = {}) const;
  /// Splits this group into one for each color, ordered by key and then by rank. Collective over
  /// this group. A rank with a negative color gets none.
  std::optional<Group> split(int color, int key, GroupOptions options = {}) const;
  /// The group of the ranks of this group that share this rank's node. Collective over those.
  Group node_group(GroupOptions options = {}) const;
  /// The group of the ranks of this group that have the same place in their nodes, one per node.
  /// Collective over those.
  Group cross_group(GroupOptions options = {}) const;

  /// Agrees on a set of gradients with all ranks and plans its buckets. Collective; the set must
  /// not outlive the group.
  ///
  /// Errors: KoloError(kMismatch), the same on every rank, naming rank, tensor and both values;
  ///         KoloError(kTimeout) if not all ranks have come within `operation_timeout`. The same
  ///         call may then be made again on this rank alone; it goes on waiting.
  GradientSet register_gradients(std::string_view name, std::vector<GradientSpec> gradients,
                                 GradientOptions options = {});

  // Operations begin at the call and go on in the background; a thread that waits for the ticket
  // drives them itself. A blocking call is `all_reduce("x", x).wait()`.
  //
  // A call takes one tensor or a list. A list has one agreement, one plan and common messages, and
  // each of its tensors gets what the operation on it alone would give it. A tensor is one buffer,
  // which is changed in place, or an input, which is only read, and a result; see `Tensor`. Every
  // buffer says how many elements it holds; one that a rank has no use for is not looked at, and
  // may be empty. All buffers of a call have one dtype, are in memory of one kind, the same on all
  // ranks, and overlap no other that is written, but for a broadcast that has a tensor twice. Lists
  // and counts need not outlive the call; buffers stay valid and untouched until the ticket is
  // done.
  //
  // `name` identifies the operation on all ranks. The first use of a name costs one round of
  // agreement; later uses reuse its plan, and run one after the other. An operation with an empty
  // name is named after its arguments: all ranks then begin those with the same arguments in the
  // same order.
  //
  // Buffers in device memory are read and written after the work enqueued on `stream` so far; with
  // the ticket the result is there for every stream. Elements stay on the device, unless bits are
  // combined, or a way through pinned host memory is predicted to be faster.
  //
  // Errors: UsageError at the call; every other error through the ticket.

  /// Combines the input of all ranks into the result of every rank, of as many elements.
  /// `reduction` is an operation that takes the dtype (see `takes`), and may scale contributions
  /// and results; both are equal on all ranks but for the scale of a premultiplied sum, which is
  /// the rank's own. Sums have the same bits on every run.
  [[nodiscard]] Ticket all_reduce(std::string_view name, const Tensors& tensors,
                                  const Reduction& reduction = ReduceOp::kSum,
                                  NativeStream stream = {});
  /// Copies the input of rank `root` to the result of all ranks. Either all ranks name one buffer,
  /// or all name two, of which the other ranks' input is not used.
  [[nodiscard]] Ticket broadcast(std::string_view name, const Tensors& tensors, int root,
                                 NativeStream stream = {});

  // The operations below that reduce take the dtypes of their operation, the others any dtype.
  // Elements are moved bit by bit.

  /// Combines the input of all ranks into the result of rank `root`, of as many elements. In place,
  /// which it is on all ranks or on none, buffers of other ranks stay as they are.
  [[nodiscard]] Ticket reduce(std::string_view name, const Tensors& tensors, int root,
                              const Reduction& reduction = ReduceOp::kSum,
                              NativeStream stream = {});
  /// Combines the input of all ranks, which holds the parts of all ranks in their order, and writes
  /// part r to the result of rank r. In place the buffer holds all parts, of which only this rank's
  /// changes.
  [[nodiscard]] Ticket reduce_scatter(std::string_view name, const Tensors& tensors,
                                      const Reduction& reduction = ReduceOp::kSum,
                                      NativeStream stream = {});
  /// Copies the input of all ranks, in their order, to the result of every rank. In place, which it
  /// is on all ranks or on none, this rank's part lies in its place in the buffer.
  [[nodiscard]] Ticket all_gather(std::string_view name, const Tensors& tensors,
                                  NativeStream stream = {});
  /// Copies the input of all ranks, in their order, to the result of rank `root`. In place at the
  /// root, whose one buffer is the result, its part lies in its place there; the one buffer of
  /// another rank is its input.
  [[nodiscard]] Ticket gather(std::string_view name, const Tensors& tensors, int root,
                              NativeStream stream = {});
  /// Copies part r of the input of rank `root`, which holds the parts of all ranks in their order,
  /// to the result of rank r. In place at the root, whose one buffer is the input, its part stays
  /// there; the one buffer of another rank is its result.
  [[nodiscard]] Ticket scatter(std::string_view name, const Tensors& tensors, int root,
                               NativeStream stream = {});
  /// Copies part r of the input of rank s to part s of the result of rank r. Without counts all
  /// parts are equal; else `counts[s * size() + r]`, the same on all ranks, is the number of
  /// elements that rank s has for rank r. In place, which it is on all ranks or on none, each two
  /// ranks exchange as many elements both ways; of the parts for others a copy is sent, whose
  /// memory is kept with the name.
  [[nodiscard]] Ticket all_to_all(std::string_view name, const Tensors& tensors,
                                  NativeStream stream = {});

  /// Sums rows of tables over all ranks: the gradients of embeddings. A rank has, in each table, a
  /// row of `table.width` elements for each of its indices, which may repeat and come in any order;
  /// as many as it likes, or none. The result, one of `Ticket::sums` for each table, is either the
  /// sorted indices that some rank had, with a row for each, or the whole table. Where `options`
  /// leave a choice, the cost model predicts both ways from the numbers of rows of this call; all
  /// ranks choose alike. Tables of one call have one dtype, are in memory of one kind, and share
  /// exchanges; in device memory all but those of rows. The memory of former results is used again.
  ///
  /// A rank adds up its own rows of one index in their order, rounded to the dtype, at the call;
  /// the sums of ranks are added in the order of ranks, rounded once more, by the thread that
  /// drives Kolo, and have the same bits on every run. 16-bit floats are added in float32. A table
  /// that is exchanged is summed as by `all_reduce`.
  ///
  /// Rows may be in device memory (`RowTable::memory`), and so is their sum then; indices are in
  /// host memory. The device adds rows up, and its library moves them. Rows stay valid until the
  /// ticket is done; indices need not.
  ///
  /// Errors: UsageError at the call, for an index outside the table, naming it, for a dtype that is
  ///         no number, and for device memory without a device; KoloError(kMismatch), the same on
  ///         every rank, for another table, operation or option.
  /// Cost:   a rank sends each of its distinct rows once and receives each row of the result once;
  ///         three small exchanges, and two pairs of operations that are planned for the numbers of
  ///         rows of this call. A table that is exchanged takes two small exchanges and an
  ///         all-reduce whose plan is kept.
  [[nodiscard]] Ticket sparse_all_reduce(std::string_view name, const OneOrMore<TableRows>& tables,
                                         const RowOptions& options = {},
                                         std::vector<RowSums> memory = {},
                                         NativeStream stream = {});

  /// The ticket is done when every rank has called it.
  [[nodiscard]] Ticket barrier();

  // Messages between two ranks, of any dtype, need no other rank and no name. Those that one rank
  // sends to another with one tag are received in the order in which they were sent. A rank may
  // send to itself. Streams and lifetime of buffers are as above.
  //
  // A message has one buffer or several, of one dtype or of several, in memory of one kind. The
  // receive of several has as many, each of the dtype and the number of elements that was sent; any
  // difference is a mismatch that quotes both lists, and nothing is written. Unless they lie one
  // behind another, each end copies them, by the thread that drives Kolo, to or from memory of the
  // message's size that it takes meanwhile.

  /// Sends `buffers` to rank `peer`. The ticket is done when they may be reused: at once for a
  /// small message (at least up to 4 KiB, as long as less than 1 MiB of such messages waits to be
  /// received there), else not before the receiver has a buffer for it.
  ///
  /// Errors: UsageError at the call. KoloError(kMismatch), the same on both ranks, if the message
  ///         is longer than the buffer of its receive or of another dtype; if the ticket is done by
  ///         then, the sender logs it. Later messages are not affected. A message that its receiver
  ///         never asks for is logged there when the runtime closes.
  [[nodiscard]] Ticket send(const Buffers& buffers, int peer, std::uint64_t tag = 0,
                            NativeStream stream = {});
  /// Receives a message with this tag from rank `peer`, or from whichever rank sends first if it is
  /// `kAnyRank`, into `buffers`; a single one may be longer than the message. `Ticket::received`
  /// tells the source and the number of elements.
  ///
  /// Errors: as for `send`; KoloError(kPeerLost) if a rank that it may wait for is lost;
  ///         KoloError(kCancelled) after `Ticket::cancel`; KoloError(kTimeout) after
  ///         `operation_timeout`, naming peer and tag.
  /// Cost:   while a receive from any rank waits, all ranks are asked for signs of life.
  [[nodiscard]] Ticket recv(const Buffers& buffers, int peer, std::uint64_t tag = 0,
                            NativeStream stream = {});

  /// From now on all ranks begin their collectives in this group, with names or without, in one
  /// order, as programs do in which the n-th call of each rank belongs together. Ranks whose n-th
  /// collectives differ then get a KoloError(kMismatch) within a few `mismatch_after`, which quotes
  /// both, although other threads might still submit what is missing. Called at the same place by
  /// all ranks, while none has a collective of the group under way. Gradient sets and messages are
  /// not counted.
  ///
  /// Cost: none while collectives get on.
  void keep_order();

  /// This rank has run out of data: it takes part in what the other ranks still do, until all have
  /// joined. Returns the rank that joined last (of several at the same time the greatest), the same
  /// on all ranks, which may all go on then.
  ///
  /// In reductions, gradient sets and barriers it counts with elements that change no result: as
  /// zeros, or no rows, in sums, and in averages, which still divide by all ranks unless the set
  /// has another divisor. Gradients of this rank are absent, and their memory has the combined
  /// values, whose residuals are sent. What it receives of a broadcast or scatter is lost. Where it
  /// would have to contribute (all_gather, gather, all_to_all, its own data as a root, a reduce to
  /// it, new gradient sets, `close`), or needs a device and has none, all ranks get the same
  /// KoloError(kMismatch), which names operation and rank; names and sets as after any mismatch. So
  /// do all that found a group of this one with this rank. A rank that waits for a message that
  /// only ranks which have joined could send, or for one of these to receive its message, gets such
  /// an error, too; what was sent or asked for before the join arrives.
  ///
  /// Threads: no other thread uses the group until it returns.
  /// Errors:  KoloError(kUsage) in the middle of an iteration of a set, and after `keep_order`.
  ///          KoloError(kTimeout) if nobody has begun anything for `operation_timeout`: the call
  ///          may be made again and goes on waiting; every other one is a UsageError.
  /// Cost:    while some ranks have joined, each use of a name and each bucket costs at most two
  ///          small frames more per edge of the tree of ranks; else nothing.
  int join();

  /// Payload bytes that this rank has sent to other nodes so far, in this group's own operations.
  std::uint64_t network_bytes_sent() const;

  /// Waits until all members close the group, then ends it. From this call on the rank begins
  /// nothing more: what it has begun ends first, as it does where the last copy of a group goes,
  /// and what others wait for it in fails at once with kMismatch, which says that the rank has
  /// closed. Collective and idempotent. Later calls fail with kShutdown.
  void close();

 protected:
  explicit Group(std::shared_ptr<MemberState> state);

  std::shared_ptr<MemberState> state_;
};

}  // namespace kolo
