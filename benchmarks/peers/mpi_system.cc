#include <mpi.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/collective/caller_memory.h"
#include "benchmarks/common/host_memory.h"
#include "benchmarks/peers/peers.h"
#include "comm/base/check.h"

namespace kolo::bench {
namespace {

/// One of MPI's algorithms for a collective, with a communicator of all ranks that uses it.
struct MpiAlgorithm {
  std::string name;
  std::shared_ptr<const MPI_Comm> comm;  ///< Shared by the runs; the last run frees it.
  bool works_in_place = true;            ///< Whether MPI_IN_PLACE may be used.
};

/// One of the numbered algorithms in Open MPI.
struct Numbered {
  int number;
  const char* name;
};

/// The variable of Open MPI's component `tuned` that selects the algorithm of a collective, and its
/// values. Linear all-reduces are excluded because they are never the best. Algorithms for two
/// ranks or an even number of ranks are excluded because the component chooses them by itself.
struct Tuned {
  const char* variable;
  std::vector<Numbered> algorithms;
};

Tuned tuned(Verb verb) {
  switch (verb) {
    case Verb::kReduce:
      return {"coll_tuned_reduce_algorithm",
              {{1, "linear"},
               {2, "chain"},
               {3, "pipeline"},
               {4, "binary"},
               {5, "binomial"},
               {7, "rabenseifner"}}};
    case Verb::kReduceScatter:
      return {
          "coll_tuned_reduce_scatter_block_algorithm",
          {{1, "linear"}, {2, "recursive_doubling"}, {3, "recursive_halving"}, {4, "butterfly"}}};
    case Verb::kAllGather:
      return {"coll_tuned_allgather_algorithm",
              {{1, "linear"}, {2, "bruck"}, {3, "recursive_doubling"}, {4, "ring"}}};
    case Verb::kGather:
      return {"coll_tuned_gather_algorithm", {{1, "linear"}, {2, "binomial"}, {3, "linear_sync"}}};
    case Verb::kScatter:
      return {"coll_tuned_scatter_algorithm", {{1, "linear"}, {2, "binomial"}, {3, "linear_nb"}}};
    case Verb::kAllToAll:
      return {"coll_tuned_alltoall_algorithm",
              {{1, "linear"}, {2, "pairwise"}, {3, "bruck"}, {4, "linear_sync"}}};
    case Verb::kBroadcast:
      return {"coll_tuned_bcast_algorithm",
              {{1, "linear"},
               {2, "chain"},
               {3, "pipeline"},
               {5, "binary"},
               {6, "binomial"},
               {8, "scatter_allgather"},
               {9, "scatter_ring"}}};
    case Verb::kAllReduce:
    case Verb::kSparseRows:
    case Verb::kSendRecv:
      break;
  }
  return {"coll_tuned_allreduce_algorithm",
          {{3, "recursive_doubling"}, {4, "ring"}, {5, "segmented_ring"}, {6, "rabenseifner"}}};
}
constexpr int kOwnChoice = 0;

std::shared_ptr<const MPI_Comm> owned(MPI_Comm comm) {
  return {new MPI_Comm(comm), [](const MPI_Comm* mine) {
            MPI_Comm theirs = *mine;
            MPI_Comm_free(&theirs);
            delete mine;
          }};
}

std::shared_ptr<const MPI_Comm> duplicate_world() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  return owned(comm);
}

/// Makes a communicator of all ranks that prefers the collectives of one component of Open MPI.
std::shared_ptr<const MPI_Comm> world_preferring(const char* component) {
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "ompi_comm_coll_preference", component);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
  MPI_Info_free(&info);
  return owned(comm);
}

/// Returns the index of a control variable; -1 if this MPI has no variable of that name.
int find_variable(const char* name) {
  int index = -1;
  return MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS ? index : -1;
}

/// Returns whether MPI sees several nodes of which one has several ranks. Collective.
bool has_two_levels() {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int local_size = 0, most = 0, world_size = 0;
  MPI_Comm_size(node, &local_size);
  MPI_Comm_free(&node);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  MPI_Allreduce(&local_size, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return most > 1 && most < world_size;
}

/// Returns the algorithms of MPI that may be the best. Collective.
/// - "default" is MPI's own choice by size.
/// - Open MPI has the algorithms of its component `tuned`. Each is selected through MPI's tool
///   interface for the communicators that are made afterwards.
/// - Open MPI has its hierarchical component `han`, used if there are several nodes and one has
///   several ranks. Its all-reduce and reduce crash in place (4.1.4, segmentation fault), so the
///   contribution is copied.
std::vector<MpiAlgorithm> find_mpi_algorithms(Verb verb) {
  std::vector<MpiAlgorithm> algorithms;
  algorithms.push_back({.name = "default", .comm = duplicate_world()});
  if (verb == Verb::kSendRecv) return algorithms;  // there is one algorithm to send
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return algorithms;
  MPI_T_cvar_handle handle = nullptr;
  int count = 0;
  const Tuned known = tuned(verb);
  const int variable = find_variable(known.variable);
  if (variable >= 0 && MPI_T_cvar_handle_alloc(variable, nullptr, &handle, &count) == MPI_SUCCESS) {
    for (const auto& [number, name] : known.algorithms) {
      if (MPI_T_cvar_write(handle, &number) != MPI_SUCCESS) break;
      algorithms.push_back({.name = name, .comm = duplicate_world()});
    }
    MPI_T_cvar_write(handle, &kOwnChoice);
    MPI_T_cvar_handle_free(&handle);
  }
  if (find_variable("coll_han_priority") >= 0 && has_two_levels()) {
    algorithms.push_back({.name = "han",
                          .comm = world_preferring("han"),
                          .works_in_place = verb != Verb::kAllReduce && verb != Verb::kReduce});
  }
  MPI_T_finalize();
  return algorithms;
}

MPI_Datatype mpi_type(const CollectiveCase& what) {
  static const std::map<DType, MPI_Datatype> types = {{DType::kFloat32, MPI_FLOAT},
                                                      {DType::kFloat64, MPI_DOUBLE},
                                                      {DType::kInt32, MPI_INT32_T},
                                                      {DType::kInt64, MPI_INT64_T},
                                                      {DType::kUInt8, MPI_UINT8_T},
                                                      {DType::kInt8, MPI_INT8_T},
                                                      {DType::kComplex64, MPI_C_FLOAT_COMPLEX},
                                                      {DType::kComplex128, MPI_C_DOUBLE_COMPLEX}};
  const auto found = types.find(what.dtype);
  if (found != types.end()) return found->second;
  if (reduces(what.verb)) refuse("mpi", what);
  return size_of(what.dtype) == 2 ? MPI_UINT16_T : MPI_UINT8_T;
}

MPI_Op mpi_op(const CollectiveCase& what) {
  static const std::map<ReduceOp, MPI_Op> ops = {
      {ReduceOp::kSum, MPI_SUM},    {ReduceOp::kMin, MPI_MIN},     {ReduceOp::kMax, MPI_MAX},
      {ReduceOp::kProd, MPI_PROD},  {ReduceOp::kBitAnd, MPI_BAND}, {ReduceOp::kBitOr, MPI_BOR},
      {ReduceOp::kBitXor, MPI_BXOR}};
  const auto found = ops.find(what.op);
  if (found == ops.end()) refuse("mpi", what);
  return found->second;
}

int rank_of(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

/// In place, MPI writes a rank's sums to the beginning of the buffer, not to the rank's part.
CaseCounts counts_in_mpi(const CollectiveCase& what, MPI_Comm comm) {
  CaseCounts counts = counts_of(what, rank_of(comm), size_of(comm));
  if (what.verb == Verb::kReduceScatter) counts.received_at = 0;
  return counts;
}

/// Returns the number of elements of a call, or of each rank's part.
int count_in_mpi(const CollectiveCase& what, int ranks) {
  const std::size_t count = has_parts(what.verb) ? what.part(ranks) : what.count();
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  if (count <= kMost) return static_cast<int>(count);
  refuse(fmt::format("MPI counts at most {} elements, and these are {}; leave mpi out of --compare",
                     kMost, count));
}

class MpiRun final : public MemoryRun {
 public:
  MpiRun(const CollectiveCase& what, MpiAlgorithm algorithm)
      : MemoryRun({what, counts_in_mpi(what, *algorithm.comm)}, algorithm.name),
        verb_(what.verb),
        type_(mpi_type(what)),
        op_(mpi_op(what)),
        count_(count_in_mpi(what, size_of(*algorithm.comm))),
        copy_(what.in_place && !algorithm.works_in_place ? HostMemory(memory_.contribution_bytes())
                                                         : HostMemory()),
        algorithm_(std::move(algorithm)) {}

  void run() override {
    MPI_Comm comm = *algorithm_.comm;
    const void* const in = input();
    void* const out = output();
    switch (verb_) {
      case Verb::kAllReduce:
      case Verb::kSparseRows:
        MPI_Allreduce(in, out, count_, type_, op_, comm);
        return;
      case Verb::kReduce:
        MPI_Reduce(in, out, count_, type_, op_, kRoot, comm);
        return;
      case Verb::kReduceScatter:
        MPI_Reduce_scatter_block(in, out, count_, type_, op_, comm);
        return;
      case Verb::kAllGather:
        MPI_Allgather(in, count_, type_, out, count_, type_, comm);
        return;
      case Verb::kGather:
        MPI_Gather(in, count_, type_, out, count_, type_, kRoot, comm);
        return;
      case Verb::kScatter:
        MPI_Scatter(in, count_, type_, out, count_, type_, kRoot, comm);
        return;
      case Verb::kAllToAll:
        MPI_Alltoall(in, count_, type_, out, count_, type_, comm);
        return;
      case Verb::kBroadcast:
        memory_.copy_contribution();  // MPI works only in place here
        MPI_Bcast(out, count_, type_, kRoot, comm);
        return;
      case Verb::kSendRecv:
        ping_pong(comm);
        return;
    }
  }
  /// UCX sends a queued message in the next MPI call, and ranks that wait for each other in Kolo
  /// make none. No rank leaves the barrier before all have entered it, so all messages are sent.
  void settle() override { MPI_Barrier(*algorithm_.comm); }
  std::string algorithm() const override {
    const bool is_copied = copy_ || (verb_ == Verb::kBroadcast && !memory_.in_place());
    return MemoryRun::algorithm() + (is_copied ? ", copied" : "");
  }

 private:
  static constexpr int kRoot = 0;
  static constexpr int kTag = 0;

  /// Sends a message to the partner and back. The lower rank sends first.
  void ping_pong(MPI_Comm comm) {
    const int rank = rank_of(comm);
    const int peer = partner(rank, size_of(comm));
    const void* const in = memory_.contribution();
    void* const out = memory_.result();
    const auto send = [&] { MPI_Send(in, count_, type_, peer, kTag, comm); };
    const auto receive = [&] { MPI_Recv(out, count_, type_, peer, kTag, comm, MPI_STATUS_IGNORE); };
    if (rank == peer) {
      MPI_Sendrecv(in, count_, type_, peer, kTag, out, count_, type_, peer, kTag, comm,
                   MPI_STATUS_IGNORE);
    } else if (rank < peer) {
      send();
      receive();
    } else {
      receive();
      send();
    }
  }

  /// Returns whether input and output are one buffer; in rooted collectives only on the root.
  bool has_one_buffer() const {
    return memory_.in_place() && (!has_root(verb_) || rank_of(*algorithm_.comm) == kRoot);
  }
  /// Returns the input to pass to MPI.
  const void* input() {
    if (!has_one_buffer()) return memory_.contribution();
    if (copy_) {
      std::memcpy(copy_.data(), memory_.contribution(), memory_.contribution_bytes());
      return copy_.data();
    }
    return verb_ == Verb::kScatter ? memory_.contribution() : MPI_IN_PLACE;
  }
  /// Returns the output to pass to MPI: MPI_IN_PLACE for the root of a scatter in place.
  void* output() const {
    return has_one_buffer() && !copy_ && verb_ == Verb::kScatter ? MPI_IN_PLACE : memory_.result();
  }

  Verb verb_;
  MPI_Datatype type_;
  MPI_Op op_;
  int count_;        ///< Number of elements of a call, or of each rank's part.
  HostMemory copy_;  ///< Copy of the contribution, for an algorithm that does not work in place.
  MpiAlgorithm algorithm_;
};

class MpiSystem final : public CollectiveSystem {
 public:
  std::string name() const override { return "mpi"; }
  std::optional<std::string> library() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    // The version ends at a comma or line break; details about the build follow.
    return std::string(text, std::string_view(text).find_first_of(",\n"));
  }
  std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) override {
    check(what.home == Home::kUser, "MPI is measured in host memory; leave mpi out");
    auto& algorithms = algorithms_[what.verb];
    if (algorithms.empty()) algorithms = find_mpi_algorithms(what.verb);
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    for (const MpiAlgorithm& algorithm : algorithms) {
      runs.push_back(std::make_unique<MpiRun>(what, algorithm));
    }
    return runs;
  }

 private:
  std::map<Verb, std::vector<MpiAlgorithm>> algorithms_;
};

}  // namespace

std::shared_ptr<void> start_mpi() {
  // Open MPI uses a selected algorithm only if this variable is set at the start. Without a
  // selection, it still chooses by size.
  ::setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0);
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  return {nullptr, [](void*) { MPI_Finalize(); }};
}

std::unique_ptr<CollectiveSystem> make_mpi_system() { return std::make_unique<MpiSystem>(); }

}  // namespace kolo::bench
