// Runs under mpirun, with one test per launch, because MPI can be started only once per process.
#include "comm/rendezvous/mpi_rendezvous.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdlib>

#include "comm/base/error.h"
#include "comm/rendezvous/launch.h"
#include "tests/comm/rendezvous/rendezvous_conformance.h"
#include "tests/support/thrown_error.h"

namespace kolo {
namespace {

constexpr std::chrono::seconds kTimeout{60};

int announced(const char* variable) { return std::atoi(std::getenv(variable)); }

void expect_conforming_as_announced(Rendezvous& rendezvous) {
  testing::expect_conforming(rendezvous, announced("OMPI_COMM_WORLD_RANK"),
                             announced("OMPI_COMM_WORLD_SIZE"));
}

bool is_finalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

TEST(MpiRendezvous, StartsMpiForAllJobsOfTheProcess) {
  for (int job = 0; job < 2; ++job) {
    MpiRendezvous first(kTimeout), second(kTimeout);
    expect_conforming_as_announced(first);
    expect_conforming_as_announced(second);
  }
  EXPECT_FALSE(is_finalized());
}

TEST(MpiRendezvous, IsRefusedOnceMpiIsFinalized) {
  MPI_Init(nullptr, nullptr);
  MPI_Finalize();
  EXPECT_THROW(MpiRendezvous{kTimeout}, KoloError);
}

TEST(MpiRendezvous, LeavesRunningMpiAlone) {
  MPI_Init(nullptr, nullptr);
  for (int job = 0; job < 2; ++job) {
    MpiRendezvous rendezvous(kTimeout);
    expect_conforming_as_announced(rendezvous);
  }
  EXPECT_FALSE(is_finalized());
  MPI_Finalize();
}

// Only rank 0 calls; the other ranks wait until it gives up.
TEST(MpiRendezvous, GivesUpAtItsDeadline) {
  MPI_Init(nullptr, nullptr);
  MpiRendezvous together(kTimeout);
  MpiRendezvous alone(std::chrono::seconds{5});
  if (alone.rank() == 0) {
    for (const ErrorCode expected : {ErrorCode::kTimeout, ErrorCode::kPeerLost}) {
      EXPECT_EQ(test::thrown_error([&] { alone.all_gather("alone"); }).code, expected);
    }
  }
  together.all_gather("");
  MPI_Finalize();
}

TEST(RendezvousFactory, UsesMpiUnderMpirun) {
  const auto rendezvous = rendezvous_from_environment(kTimeout);
  expect_conforming_as_announced(*rendezvous);
}

TEST(RendezvousFactory, NoticesAnotherJobThanAnnounced) {
  const Environment wrong = [](const std::string& name) -> std::optional<std::string> {
    if (name == "OMPI_COMM_WORLD_SIZE") return "64";
    return std::nullopt;
  };
  EXPECT_EQ(test::thrown_error([&] { rendezvous_from_environment(kTimeout, wrong); }).code,
            ErrorCode::kConfig);
}

}  // namespace
}  // namespace kolo
