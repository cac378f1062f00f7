#include "benchmarks/mpi_system.h"

#include <mpi.h>

#include <cstring>

#include <fmt/format.h>

#include "comm/base/aligned_memory.h"
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
  explicit MpiRun(const AllReduceCase& what)
      : what_(what), type_(mpi_type(what.dtype)), memory_(allocate_aligned(what.bytes)) {
    check(what.op != ReduceOp::kAverage, "MPI has no average; use --op sum with --compare mpi");
    check(what.memory == MemoryKind::kHost, "MPI is measured in host memory; leave mpi out");
  }

  void write(const void* elements) override { std::memcpy(memory_.get(), elements, what_.bytes); }
  void read(void* elements) override { std::memcpy(elements, memory_.get(), what_.bytes); }
  void run() override {
    MPI_Allreduce(MPI_IN_PLACE, memory_.get(), narrow<int>(what_.count()), type_, mpi_op(what_.op),
                  MPI_COMM_WORLD);
  }
  std::string algorithm() const override { return "default"; }

 private:
  AllReduceCase what_;
  MPI_Datatype type_;
  AlignedMemory memory_;
};

class MpiSystem final : public AllReduceSystem {
 public:
  std::string name() const override { return "mpi"; }
  std::unique_ptr<AllReduceRun> prepare(const AllReduceCase& what) override {
    return std::make_unique<MpiRun>(what);
  }
};

}  // namespace

MpiSession::MpiSession() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
}

MpiSession::~MpiSession() { MPI_Finalize(); }

std::unique_ptr<AllReduceSystem> make_mpi_system() { return std::make_unique<MpiSystem>(); }

}  // namespace kolo::bench
