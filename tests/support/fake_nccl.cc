#include "tests/support/fake_nccl.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "comm/native/nccl_library.h"
#include "tests/support/device/fake_cuda.h"

/// A communicator. As in NCCL, `split` is set when the parent communicator has settled, although
/// the split itself returns earlier.
struct ncclComm {
  int rank = 0;
  int size = 1;
  char group = 0;
  int polls_left = 0;
  bool stuck = false;
  bool blocks = false;
  ncclComm** split = nullptr;
};

namespace kolo::test {
namespace {

std::unique_ptr<FakeNccl>& current() {
  static std::unique_ptr<FakeNccl> fake;
  return fake;
}

/// The calls since ncclGroupStart.
struct Launch {
  bool is_open = false;
  std::vector<ncclComm*> comms;
};

Launch& launch() {
  static Launch open;
  return open;
}

ncclResult_t begin(ncclComm& comm) {
  if (comm.blocks) return ncclSuccess;
  comm.polls_left = fake_nccl().polls_in_progress;
  comm.stuck = fake_nccl().stuck;
  const bool is_over =
      !comm.stuck && comm.polls_left == 0 && fake_nccl().has_met(comm.group, comm.rank);
  return is_over ? ncclSuccess : ncclInProgress;
}

ncclResult_t begin_launch(ncclComm& comm) {
  fake_nccl().launch(comm.group, comm.rank, comm.size);
  return begin(comm);
}

/// Records a collective. Between ncclGroupStart and ncclGroupEnd it only joins the launch.
ncclResult_t call(const std::string& name, ncclComm& comm) {
  fake_nccl().record(name);
  kolo::test::refuse_during_capture();
  if (!launch().is_open) return begin_launch(comm);
  launch().comms.push_back(&comm);
  return ncclSuccess;
}

ncclComm_t make_communicator(int rank, int size, char group = 0) {
  auto* const comm = new ncclComm{.rank = rank, .size = size, .group = group};
  begin(*comm);
  return comm;
}

void finish(ncclComm& comm) {
  if (comm.split != nullptr) *std::exchange(comm.split, nullptr) = make_communicator(0, 1);
}

}  // namespace

void FakeNccl::close_gate() {
  const MutexLock lock(mutex_);
  gate_is_open_ = false;
}

void FakeNccl::open_gate() {
  const MutexLock lock(mutex_);
  gate_is_open_ = true;
  opened_.notify_all();
}

void FakeNccl::pass_gate(std::ptrdiff_t abort) {
  MutexLock lock(mutex_);
  if (hangs >= 0 && hangs != abort) return;
  opened_.wait(lock, [this]() KOLO_REQUIRES(mutex_) { return gate_is_open_; });
}

void FakeNccl::launch(char group, int rank, int size) {
  if (!meets) return;
  const MutexLock lock(mutex_);
  launches_[group].resize(static_cast<std::size_t>(size));
  ++launches_[group][static_cast<std::size_t>(rank)];
}

bool FakeNccl::has_met(char group, int rank) {
  const MutexLock lock(mutex_);
  const auto found = launches_.find(group);
  if (found == launches_.end()) return true;
  return std::ranges::min(found->second) >= found->second[static_cast<std::size_t>(rank)];
}

std::ptrdiff_t FakeNccl::record(const std::string& call) {
  const MutexLock lock(mutex_);
  calls_.push_back(call);
  return std::count(calls_.begin(), calls_.end(), call) - 1;
}

std::ptrdiff_t FakeNccl::called(const std::string& function) {
  const MutexLock lock(mutex_);
  return std::count(calls_.begin(), calls_.end(), function);
}

std::vector<std::string> FakeNccl::calls() {
  const MutexLock lock(mutex_);
  return calls_;
}

FakeNccl& fake_nccl() { return *current(); }

FakeNcclScope::FakeNcclScope() {
  current() = std::make_unique<FakeNccl>();
  renew_fake_cuda();
}
FakeNcclScope::~FakeNcclScope() { current().reset(); }

}  // namespace kolo::test

using kolo::test::begin;
using kolo::test::begin_launch;
using kolo::test::call;
using kolo::test::fake_nccl;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = fake_nccl().version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  id->internal[0] = fake_nccl().groups++;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "a fake remote error" : "a fake error";
}

const char* ncclGetLastError(ncclComm_t) { return "the fake library says so"; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  fake_nccl().record(config->blocking == 0 ? "init" : "blocking init");
  fake_nccl().most_blocks = config->maxCTAs;
  if (config->blocking != 0) fake_nccl().pass_gate(0);
  *comm = kolo::test::make_communicator(rank, size, id.internal[0]);
  if (config->blocking == 0) return ncclInProgress;
  (*comm)->blocks = true;
  (*comm)->stuck = false;
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int, int, ncclComm_t* child, ncclConfig_t* config) {
  fake_nccl().record(config->blocking == 0 ? "split" : "blocking split");
  if (config->blocking != 0) {
    *child = new ncclComm{.blocks = true};
    return ncclSuccess;
  }
  comm->split = child;
  begin(*comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = fake_nccl().async_error;
  if (*error != ncclSuccess) return ncclSuccess;
  if (comm->stuck || !fake_nccl().has_met(comm->group, comm->rank) || comm->polls_left-- > 0) {
    *error = ncclInProgress;
  } else {
    comm->polls_left = 0;
    kolo::test::finish(*comm);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  fake_nccl().pass_gate(fake_nccl().record("abort"));
  kolo::test::refuse_during_capture();
  delete comm;
  fake_nccl().record("aborted");
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  fake_nccl().record("finalize");
  kolo::test::refuse_during_capture();
  if (comm->blocks) fake_nccl().pass_gate(0);
  return begin(*comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  fake_nccl().record("destroy");
  kolo::test::wait_for_device();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  if (!fake_nccl().allocates) return ncclUnhandledCudaError;
  fake_nccl().record("ncclMemAlloc");
  kolo::test::refuse_during_capture();
  *memory = kolo::test::fake_cuda().allocate(bytes, cudaMemoryTypeDevice);
  return *memory != nullptr ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) {
  fake_nccl().record("ncclMemFree");
  kolo::test::refuse_during_capture();
  kolo::test::fake_cuda().free(memory);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t, void* memory, size_t, void** handle) {
  if (!fake_nccl().registers) return ncclInternalError;
  fake_nccl().record("register");
  *handle = memory;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  fake_nccl().record("deregister");
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t) {
  return call("all_reduce", *comm);
}

ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t) {
  return call("reduce_scatter", *comm);
}

ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t) {
  return call("all_gather", *comm);
}

ncclResult_t ncclReduce(const void*, void* target, size_t, ncclDataType_t, ncclRedOp_t, int root,
                        ncclComm_t comm, cudaStream_t) {
  return call(fmt::format("reduce to {}{}", root, target == nullptr ? "" : ", here"), *comm);
}

ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int root, ncclComm_t comm,
                           cudaStream_t) {
  return call(fmt::format("broadcast from {}", root), *comm);
}

ncclResult_t ncclSend(const void*, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t) {
  return call(fmt::format("send {} to {}", count, peer), *comm);
}

ncclResult_t ncclRecv(void*, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t) {
  return call(fmt::format("receive {} from {}", count, peer), *comm);
}

ncclResult_t ncclGroupStart() {
  fake_nccl().record("start");
  kolo::test::launch().is_open = true;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  fake_nccl().record("end");
  kolo::test::Launch launched = std::exchange(kolo::test::launch(), {});
  ncclResult_t result = ncclSuccess;
  const ncclComm* last = nullptr;
  for (ncclComm* comm : launched.comms) {
    if (std::exchange(last, comm) != comm) result = begin_launch(*comm);
  }
  return result;
}

}  // extern "C"

namespace kolo {

const NcclLibrary& nccl(const std::string& file) {
  if (!file.empty()) test::fake_nccl().record("load " + file);
#define KOLO_NCCL_FUNCTION(name) .name = &::name,
  static const NcclLibrary fake = {KOLO_NCCL_FUNCTIONS(KOLO_NCCL_FUNCTION)};
#undef KOLO_NCCL_FUNCTION
  return fake;
}

}  // namespace kolo
