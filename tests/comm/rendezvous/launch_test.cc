#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "comm/rendezvous/launch.h"
#include "tests/support/thrown_error.h"

namespace kolo {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

constexpr std::chrono::seconds kTimeout{7};

Environment environment(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Launch detect(const Variables& variables, bool mpi_available = true) {
  return detect_launch(environment(variables), mpi_available, kTimeout);
}

void expect_config_error(const Variables& variables, const std::string& text,
                         bool mpi_available = true) {
  const Error error = test::thrown_error([&] { detect(variables, mpi_available); });
  EXPECT_EQ(error.code, ErrorCode::kConfig);
  EXPECT_THAT(error.what, HasSubstr(text));
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

const Variables kTorchrun = {
    {"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "29500"}};
const Variables kSlurm = {{"SLURM_PROCID", "1"},
                          {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_JOB_ID", "4711"},
                          {"SLURM_JOB_NODELIST", "n[07-09,11]"}};

TEST(Launch, NothingMeansOneRank) { EXPECT_EQ(detect({}).kind, Launch::Kind::kSingle); }

TEST(Launch, OpenMpiComesFirst) {
  Variables all = kTorchrun;
  all.insert({{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "1"}});
  const Launch launch = detect(all);
  EXPECT_EQ(launch.kind, Launch::Kind::kMpi);
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.size, 3);
  expect_config_error(all, "built without MPI", false);
}

TEST(Launch, PmiNeedsMpiUnlessSomethingElseTells) {
  EXPECT_EQ(detect({{"PMIX_RANK", "5"}}).rank, 5);
  EXPECT_EQ(detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).size, 2);
  expect_config_error({{"PMIX_RANK", "5"}}, "built without MPI", false);
  EXPECT_EQ(detect(with(kSlurm, "PMIX_RANK", "1"), false).kind, Launch::Kind::kTcp);
  EXPECT_EQ(detect(with(kTorchrun, "PMI_RANK", "1"), false).kind, Launch::Kind::kTcp);
}

// The mpiexec of MPICH and of Intel MPI set these variables.
TEST(Launch, WithoutMpiPmiTellsThePlaceOfARankAndTheUserWhereToMeet) {
  const Variables pmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"PMI_FD", "7"}};
  expect_config_error(pmi, "set MASTER_ADDR", false);
  expect_config_error(with(pmi, "MASTER_ADDR", "host0"), "MASTER_PORT is not set", false);
  const Launch launch =
      detect(with(with(pmi, "MASTER_ADDR", "host0"), "MASTER_PORT", "29500"), false);
  EXPECT_EQ(launch.kind, Launch::Kind::kTcp);
  EXPECT_EQ(launch.tcp.rank, 1);
  EXPECT_EQ(launch.tcp.size, 3);
  EXPECT_EQ(launch.tcp.host, "host0");
  EXPECT_EQ(launch.tcp.port, 29500);
}

TEST(Launch, WithoutMpiPmixServesItsLaunchers) {
  const Variables pmix = {{"PMIX_NAMESPACE", "1"}, {"PMIX_RANK", "1"}};
  EXPECT_EQ(detect(pmix).kind, Launch::Kind::kMpi);
  EXPECT_EQ(detect(pmix, false).kind, Launch::Kind::kPmix);
  EXPECT_EQ(detect(with(pmix, "OMPI_COMM_WORLD_SIZE", "2"), false).kind, Launch::Kind::kPmix);
  EXPECT_EQ(detect(with(pmix, "OMPI_COMM_WORLD_SIZE", "1"), false).kind, Launch::Kind::kSingle);
  Variables in_slurm = kSlurm;
  in_slurm.insert(pmix.begin(), pmix.end());
  EXPECT_EQ(detect(in_slurm, false).kind, Launch::Kind::kTcp);
  EXPECT_EQ(detect(with(in_slurm, "OMPI_COMM_WORLD_SIZE", "2"), false).kind, Launch::Kind::kPmix);
}

TEST(Launch, OneRankNeedsNoLauncher) {
  EXPECT_EQ(detect({{"OMPI_COMM_WORLD_SIZE", "1"}}, false).kind, Launch::Kind::kSingle);
  EXPECT_EQ(detect({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).kind, Launch::Kind::kSingle);
  EXPECT_EQ(detect({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}).kind,
            Launch::Kind::kSingle);
}

TEST(Launch, ReadsTorchrun) {
  const Launch launch = detect(with(kTorchrun, "TORCHELASTIC_RUN_ID", "run"));
  EXPECT_EQ(launch.kind, Launch::Kind::kTcp);
  EXPECT_EQ(launch.tcp.rank, 2);
  EXPECT_EQ(launch.tcp.size, 4);
  EXPECT_EQ(launch.tcp.host, "fe80::1");
  EXPECT_EQ(launch.tcp.port, 29500);
  EXPECT_EQ(launch.tcp.job_id, "run");
  EXPECT_EQ(launch.tcp.timeout, kTimeout);
}

TEST(Launch, AnAddressMayStandInBrackets) {
  EXPECT_EQ(detect(with(kTorchrun, "MASTER_ADDR", "[fd00:77::1]")).tcp.host, "fd00:77::1");
}

TEST(Launch, LeavesTorchrunItsOwnPort) {
  EXPECT_EQ(detect(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True")).tcp.port, 29501);
  EXPECT_EQ(detect(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "False")).tcp.port, 29500);
}

TEST(Launch, NamesWhatIsWrongWithTorchrun) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    Variables variables = kTorchrun;
    variables.erase(name);
    expect_config_error(variables, std::string(name) + " is not set");
  }
  expect_config_error(with(kTorchrun, "RANK", "4"), "rank 4 does not exist with WORLD_SIZE=4");
  expect_config_error(with(kTorchrun, "RANK", "-1"), "RANK='-1'");
  expect_config_error(with(kTorchrun, "RANK", "2x"), "RANK='2x'");
  expect_config_error(with(kTorchrun, "WORLD_SIZE", "0"), "WORLD_SIZE='0'");
  expect_config_error(with(kTorchrun, "WORLD_SIZE", "99999999999"), "WORLD_SIZE='99999999999'");
  expect_config_error(with(kTorchrun, "MASTER_PORT", "65536"), "MASTER_PORT='65536'");
}

TEST(Launch, ReadsSlurm) {
  const Launch launch = detect(kSlurm);
  EXPECT_EQ(launch.kind, Launch::Kind::kTcp);
  EXPECT_EQ(launch.tcp.rank, 1);
  EXPECT_EQ(launch.tcp.size, 4);
  EXPECT_EQ(launch.tcp.host, "n07");
  EXPECT_EQ(launch.tcp.job_id, "4711.0");
  EXPECT_EQ(detect(with(kSlurm, "SLURM_STEP_NODELIST", "n[09,11]")).tcp.host, "n09");
  EXPECT_EQ(detect(with(kSlurm, "SLURM_NTASKS", "8")).tcp.size, 4);
  EXPECT_EQ(detect(with(kSlurm, "MASTER_ADDR", "10.0.0.1")).tcp.host, "10.0.0.1");
  EXPECT_EQ(detect(with(kSlurm, "MASTER_PORT", "4000")).tcp.port, 4000);
}

// Only srun starts ranks; a batch script is one process, whatever the job reserves.
TEST(Launch, ABatchScriptOfSlurmIsAlone) {
  Variables script = with(kSlurm, "SLURM_NTASKS", "8");
  script.erase("SLURM_STEP_NUM_TASKS");
  script["SLURM_PROCID"] = "0";
  EXPECT_EQ(detect(script).kind, Launch::Kind::kSingle);
}

TEST(Launch, SlurmPortIsSharedByAStepAndBelowTheEphemeralRange) {
  const std::uint16_t port = detect(kSlurm).tcp.port;
  EXPECT_EQ(detect(with(kSlurm, "SLURM_PROCID", "3")).tcp.port, port);
  EXPECT_NE(detect(with(kSlurm, "SLURM_STEP_ID", "1")).tcp.port, port);
  for (int job = 0; job < 1000; ++job) {
    const std::uint16_t other = detect(with(kSlurm, "SLURM_JOB_ID", std::to_string(job))).tcp.port;
    EXPECT_GE(other, 1024);
    EXPECT_LT(other, 32768);
  }
}

TEST(Launch, NamesWhatIsWrongWithSlurm) {
  expect_config_error(with(kSlurm, "SLURM_JOB_NODELIST", ""), "SLURM_JOB_NODELIST is not set");
  expect_config_error(with(kSlurm, "SLURM_JOB_NODELIST", "n[1"), "'n[1'");
  expect_config_error(with(kSlurm, "SLURM_PROCID", "4"), "SLURM_STEP_NUM_TASKS=4");
  expect_config_error(with(kSlurm, "SLURM_JOB_ID", ""), "SLURM_JOB_ID is not set");
}

TEST(RendezvousFactory, MakesAJobOfOneRank) {
  const auto rendezvous = rendezvous_from_environment(kTimeout, environment({}));
  EXPECT_EQ(rendezvous->size(), 1);
  EXPECT_THAT(rendezvous->all_gather("alone"), ::testing::ElementsAre("alone"));
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Hostlist, ReadsNamesAndRanges) {
  EXPECT_THAT(parse_hostlist("n1"), ElementsAre("n1"));
  EXPECT_THAT(parse_hostlist("b,a"), ElementsAre("b", "a"));
  EXPECT_THAT(parse_hostlist("n[01-03,7]"), ElementsAre("n01", "n02", "n03", "n7"));
  EXPECT_THAT(parse_hostlist("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(parse_hostlist("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(parse_hostlist("login,n[2,1]-ib,gpu-a"),
              ElementsAre("login", "n2-ib", "n1-ib", "gpu-a"));
  EXPECT_THAT(parse_hostlist("r[1-2]n[5-6]"), ElementsAre("r1n5", "r1n6", "r2n5", "r2n6"));
  EXPECT_THAT(parse_hostlist("node-1.example.org"), ElementsAre("node-1.example.org"));
}

TEST(Hostlist, NamesTheListItRejects) {
  for (const char* list : {"", ",", "a,", "n[", "n]", "n[]", "n[1", "n[1-", "n[-1]", "n[1-]",
                           "n[,]", "n[2-1]", "n[a-b]", "n[1,]", "n[1[2]]", "n[1-2-3]",
                           "n[0-999999999]", "n[99999999999]", "a[0-9999]b[0-9999]"}) {
    const Error error = test::thrown_error([&] { parse_hostlist(list); });
    EXPECT_EQ(error.code, ErrorCode::kConfig) << list;
    EXPECT_THAT(error.what, HasSubstr("'" + std::string(list) + "'"));
  }
}

}  // namespace

}  // namespace kolo
