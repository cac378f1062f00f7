#include "benchmarks/peers/mpi_algorithms.h"

#include <cstdlib>

namespace kolo::bench {
namespace {

/// As Open MPI numbers them; the linear ones are left out, which no size or shape favours.
struct Numbered {
  int number;
  const char* name;
};
constexpr Numbered kTuned[] = {
    {3, "recursive_doubling"}, {4, "ring"}, {5, "segmented_ring"}, {6, "rabenseifner"}};
constexpr int kOwnChoice = 0;

std::shared_ptr<const MPI_Comm> duplicate_world() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  return {new MPI_Comm(comm), [](const MPI_Comm* mine) {
            MPI_Comm theirs = *mine;
            MPI_Comm_free(&theirs);
            delete mine;
          }};
}

/// The control variable that holds the algorithm; -1 if this MPI has none.
int find_variable() {
  int index = -1;
  return MPI_T_cvar_get_index("coll_tuned_allreduce_algorithm", &index) == MPI_SUCCESS ? index : -1;
}

}  // namespace

void allow_mpi_algorithms() { ::setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0); }

std::vector<MpiAlgorithm> find_mpi_algorithms() {
  std::vector<MpiAlgorithm> algorithms;
  algorithms.push_back({"default", duplicate_world()});
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return algorithms;
  MPI_T_cvar_handle handle = nullptr;
  int count = 0;
  const int variable = find_variable();
  if (variable >= 0 && MPI_T_cvar_handle_alloc(variable, nullptr, &handle, &count) == MPI_SUCCESS) {
    for (const auto& [number, name] : kTuned) {
      if (MPI_T_cvar_write(handle, &number) != MPI_SUCCESS) break;
      algorithms.push_back({name, duplicate_world()});
    }
    MPI_T_cvar_write(handle, &kOwnChoice);
    MPI_T_cvar_handle_free(&handle);
  }
  MPI_T_finalize();
  return algorithms;
}

}  // namespace kolo::bench
