#include <mpi.h>

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "benchmarks/all_reduce/caller_memory.h"
#include "benchmarks/peers/mpi_algorithms.h"
#include "benchmarks/peers/peer_systems.h"
#include "comm/base/check.h"

namespace kolo::bench {
namespace {

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return MPI_FLOAT;
    case DType::kFloat64:
      return MPI_DOUBLE;
    case DType::kInt32:
      return MPI_INT32_T;
    case DType::kInt64:
      return MPI_INT64_T;
    case DType::kUInt8:
      return MPI_UINT8_T;
    case DType::kFloat16:
    case DType::kBFloat16:
      break;
  }
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .what = fmt::format("MPI cannot reduce {}; leave mpi out of --compare", to_string(dtype))});
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kProd:
      return MPI_PROD;
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      break;
  }
  return MPI_SUM;
}

class MpiRun final : public AllReduceRun {
 public:
  MpiRun(const AllReduceCase& what, MpiAlgorithm algorithm)
      : type_(mpi_type(what.dtype)),
        op_(mpi_op(what.op)),
        count_(narrow<int>(what.count())),
        memory_(what),
        copy_(what.in_place && !algorithm.works_in_place ? HostMemory(what.bytes) : HostMemory()),
        algorithm_(std::move(algorithm)) {}

  void write(const void* elements) override { memory_.write(elements); }
  void read(void* elements) override { memory_.read(elements); }
  void read_contribution(void* elements) override { memory_.read_contribution(elements); }
  void run() override {
    if (copy_) std::memcpy(copy_.data(), memory_.sum(), memory_.bytes());
    const void* const contribution = copy_                ? copy_.data()
                                     : memory_.in_place() ? MPI_IN_PLACE
                                                          : memory_.contribution();
    MPI_Allreduce(contribution, memory_.sum(), count_, type_, op_, *algorithm_.comm);
  }
  /// UCX sends a queued message in the next call of MPI, and none follows while ranks wait for each
  /// other in Kolo. A barrier ensures such calls: no rank leaves it before all have entered.
  void settle() override { MPI_Barrier(*algorithm_.comm); }
  std::string algorithm() const override { return algorithm_.name + (copy_ ? ", copied" : ""); }

 private:
  MPI_Datatype type_;
  MPI_Op op_;
  int count_;
  CallerMemory memory_;
  HostMemory copy_;  ///< Copy of the contribution, for an algorithm that does not work in place.
  MpiAlgorithm algorithm_;
};

class MpiSystem final : public AllReduceSystem {
 public:
  std::string name() const override { return "mpi"; }
  std::vector<std::unique_ptr<AllReduceRun>> prepare(const AllReduceCase& what) override {
    check(what.op != ReduceOp::kAverage, "MPI has no average; use --op sum with --compare mpi");
    check(what.home == Home::kUser, "MPI is measured in host memory; leave mpi out");
    std::vector<std::unique_ptr<AllReduceRun>> runs;
    for (const MpiAlgorithm& algorithm : algorithms_) {
      runs.push_back(std::make_unique<MpiRun>(what, algorithm));
    }
    return runs;
  }

 private:
  std::vector<MpiAlgorithm> algorithms_ = find_mpi_algorithms();
};

}  // namespace

MpiSession::MpiSession() {
  allow_mpi_algorithms();
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
}

MpiSession::~MpiSession() { MPI_Finalize(); }

std::unique_ptr<AllReduceSystem> make_mpi_system() { return std::make_unique<MpiSystem>(); }

}  // namespace kolo::bench
