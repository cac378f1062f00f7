#include "benchmarks/peers/mpi_algorithms.h"

#include <cstdlib>

namespace kolo::bench {
namespace {

/// One of Open MPI's numbered algorithms.
struct Numbered {
  int number;
  const char* name;
};

/// The variable of Open MPI's component `tuned` that selects the algorithm of a collective, and its
/// values; without linear all-reduces, which are never the best, and without those for two ranks
/// or an even number of them, which the component chooses by itself.
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

/// A communicator whose collectives are those of one component of Open MPI, where it has them.
std::shared_ptr<const MPI_Comm> world_preferring(const char* component) {
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "ompi_comm_coll_preference", component);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
  MPI_Info_free(&info);
  return owned(comm);
}

/// Index of a control variable; -1 if this MPI has none of that name.
int find_variable(const char* name) {
  int index = -1;
  return MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS ? index : -1;
}

/// Whether there are several nodes and one of them has several ranks, as MPI sees them. Collective.
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

}  // namespace

void allow_mpi_algorithms() { ::setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0); }

std::vector<MpiAlgorithm> find_mpi_algorithms(Verb verb) {
  std::vector<MpiAlgorithm> algorithms;
  algorithms.push_back({.name = "default", .comm = duplicate_world()});
  if (verb == Verb::kSendRecv) return algorithms;  // There is one way to send.
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

}  // namespace kolo::bench
