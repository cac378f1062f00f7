// Runs under mpirun, in a program without MPI.
#include "comm/rendezvous/pmix_rendezvous.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "comm/base/error.h"
#include "comm/base/unique_handle.h"
#include "comm/rendezvous/launch.h"
#include "comm/rendezvous/pmix_library.h"
#include "tests/comm/rendezvous/rendezvous_conformance.h"
#include "tests/support/thrown_error.h"

#if __has_include(<pmix.h>)
#include <pmix.h>

static_assert(sizeof(pmix_proc_t) == sizeof(kolo::PmixProcess));
static_assert(offsetof(pmix_proc_t, rank) == offsetof(kolo::PmixProcess, rank));
static_assert(sizeof(pmix_value_t) == sizeof(kolo::PmixValue));
static_assert(offsetof(pmix_value_t, data) == offsetof(kolo::PmixValue, bytes));
static_assert(offsetof(pmix_byte_object_t, size) == sizeof(char*));
static_assert(sizeof(pmix_info_t) == sizeof(kolo::PmixInfo));
static_assert(offsetof(pmix_info_t, value) == offsetof(kolo::PmixInfo, value));
static_assert(PMIX_RANK_WILDCARD == kolo::kPmixAllRanks);
static_assert(PMIX_GLOBAL == kolo::kPmixGlobal);
static_assert(PMIX_BYTE_OBJECT == static_cast<int>(kolo::PmixType::kBytes));
#endif

namespace kolo {
namespace {

constexpr std::chrono::seconds kTimeout{60};

int announced(const char* variable) { return std::atoi(std::getenv(variable)); }

void expect_conforming_as_announced(Rendezvous& rendezvous) {
  testing::expect_conforming(rendezvous, announced("OMPI_COMM_WORLD_RANK"),
                             announced("OMPI_COMM_WORLD_SIZE"));
}

TEST(PmixRendezvous, ServesAllJobsOfTheProcess) {
  for (int job = 0; job < 2; ++job) {
    PmixRendezvous first(kTimeout), second(kTimeout);
    expect_conforming_as_announced(first);
    expect_conforming_as_announced(second);
  }
}

/// Blocks until the given process of this machine has ended.
void await_end(int process) {
  const FileDescriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  pollfd ended{.fd = handle.get(), .events = POLLIN, .revents = 0};
  constexpr int kPatienceMs = 60'000;
  if (!handle) return;  // the process has already ended
  EXPECT_EQ(::poll(&ended, 1, kPatienceMs), 1);
}

// Only rank 0 calls; the other ranks wait for its end.
TEST(PmixRendezvous, GivesUpAtItsDeadline) {
  PmixRendezvous together(kTimeout), alone(std::chrono::milliseconds(50));
  const std::string first = together.all_gather(std::to_string(::getpid())).front();
  if (together.rank() != 0) return await_end(std::stoi(first));
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_EQ(test::thrown_error([&] { alone.all_gather("alone"); }).code, ErrorCode::kTimeout);
  }
}

TEST(RendezvousFactory, UsesPmixUnderMpirunIfThereIsNoMpi) {
  const auto rendezvous = rendezvous_from_environment(kTimeout);
  EXPECT_NE(dynamic_cast<PmixRendezvous*>(rendezvous.get()), nullptr);
  expect_conforming_as_announced(*rendezvous);
}

}  // namespace
}  // namespace kolo
