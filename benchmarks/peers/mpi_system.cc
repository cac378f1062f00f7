#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/collective/caller_memory.h"
#include "benchmarks/peers/mpi_algorithms.h"
#include "benchmarks/peers/peer_systems.h"
#include "comm/base/check.h"

namespace kolo::bench {
namespace {

[[noreturn]] void refuse_mpi(const CollectiveCase& what) {
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .what = fmt::format("MPI is not compared for {} of {}; leave mpi out of --compare",
                           to_string(what.op), to_string(what.dtype))});
}

MPI_Datatype mpi_type(const CollectiveCase& what) {
  switch (what.dtype) {
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
    case DType::kInt8:
      return MPI_INT8_T;
    case DType::kComplex64:
      return MPI_C_FLOAT_COMPLEX;
    case DType::kComplex128:
      return MPI_C_DOUBLE_COMPLEX;
    case DType::kFloat16:
    case DType::kBFloat16:
      if (!reduces(what.verb)) return MPI_UINT16_T;
      break;
    case DType::kBool:
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      if (!reduces(what.verb)) return MPI_UINT8_T;
      break;
  }
  refuse_mpi(what);
}

MPI_Op mpi_op(const CollectiveCase& what) {
  switch (what.op) {
    case ReduceOp::kSum:
      return MPI_SUM;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kProd:
      return MPI_PROD;
    case ReduceOp::kBitAnd:
      return MPI_BAND;
    case ReduceOp::kBitOr:
      return MPI_BOR;
    case ReduceOp::kBitXor:
      return MPI_BXOR;
    case ReduceOp::kAverage:
    case ReduceOp::kPremulSum:
      break;
  }
  refuse_mpi(what);
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

constexpr std::size_t kMostElements = std::numeric_limits<int>::max();

/// In place, MPI puts a rank's sums at the beginning of the buffer, and not where its part is.
CaseCounts counts_in_mpi(const CollectiveCase& what, MPI_Comm comm) {
  CaseCounts counts = counts_of(what, rank_of(comm), size_of(comm));
  if (what.verb == Verb::kReduceScatter) counts.received_at = 0;
  return counts;
}

/// Parts cannot be cut, because all of them lie side by side.
int part_of(const CollectiveCase& what, int ranks) {
  const std::size_t part = what.part(ranks);
  if (!has_parts(what.verb) || part <= kMostElements) {
    return static_cast<int>(std::min(part, kMostElements));
  }
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .what = fmt::format("MPI counts at most {} elements of a part, and these have {}; leave mpi "
                           "out of --compare",
                           kMostElements, part)});
}

class MpiRun final : public CollectiveRun {
 public:
  MpiRun(const CollectiveCase& what, MpiAlgorithm algorithm)
      : verb_(what.verb),
        type_(mpi_type(what)),
        op_(mpi_op(what)),
        element_bytes_(size_of(what.dtype)),
        count_(what.count()),
        part_(part_of(what, size_of(*algorithm.comm))),
        memory_(what, counts_in_mpi(what, *algorithm.comm)),
        copy_(what.in_place && !algorithm.works_in_place ? HostMemory(memory_.contribution_bytes())
                                                         : HostMemory()),
        algorithm_(std::move(algorithm)) {}

  void write(const void* elements) override { memory_.write(elements); }
  void read(void* elements) override { memory_.read(elements); }
  void read_contribution(void* elements) override { memory_.read_contribution(elements); }
  void run() override {
    MPI_Comm comm = *algorithm_.comm;
    const void* const in = input();
    void* const out = output();
    switch (verb_) {
      case Verb::kAllReduce:
      case Verb::kSparseRows:
        return in_pieces([&](std::size_t first, int count) {
          MPI_Allreduce(at(in, first), at(out, first), count, type_, op_, comm);
        });
      case Verb::kReduce:
        return in_pieces([&](std::size_t first, int count) {
          MPI_Reduce(at(in, first), at(out, first), count, type_, op_, kRoot, comm);
        });
      case Verb::kReduceScatter:
        MPI_Reduce_scatter_block(in, out, part_, type_, op_, comm);
        return;
      case Verb::kAllGather:
        MPI_Allgather(in, part_, type_, out, part_, type_, comm);
        return;
      case Verb::kGather:
        MPI_Gather(in, part_, type_, out, part_, type_, kRoot, comm);
        return;
      case Verb::kScatter:
        MPI_Scatter(in, part_, type_, out, part_, type_, kRoot, comm);
        return;
      case Verb::kAllToAll:
        MPI_Alltoall(in, part_, type_, out, part_, type_, comm);
        return;
      case Verb::kBroadcast:
        memory_.copy_contribution();  // It works in place only.
        return in_pieces([&](std::size_t first, int count) {
          MPI_Bcast(at(out, first), count, type_, kRoot, comm);
        });
      case Verb::kSendRecv:
        ping_pong(comm);
        return;
    }
  }
  /// UCX sends a queued message in the next call of MPI, and none follows while ranks wait for each
  /// other in Kolo. A barrier ensures such calls: no rank leaves it before all have entered.
  void settle() override { MPI_Barrier(*algorithm_.comm); }
  std::string algorithm() const override {
    const bool is_copied = copy_ || (verb_ == Verb::kBroadcast && !memory_.in_place());
    return algorithm_.name + (is_copied ? ", copied" : "");
  }

 private:
  static constexpr int kRoot = 0;
  static constexpr int kTag = 0;

  /// The first of two partners sends, and then the other.
  void ping_pong(MPI_Comm comm) {
    const int rank = rank_of(comm);
    const int peer = partner(rank, size_of(comm));
    const void* const in = memory_.contribution();
    void* const out = memory_.result();
    const auto send = [&] {
      in_pieces([&](std::size_t first, int count) {
        MPI_Send(at(in, first), count, type_, peer, kTag, comm);
      });
    };
    const auto receive = [&] {
      in_pieces([&](std::size_t first, int count) {
        MPI_Recv(at(out, first), count, type_, peer, kTag, comm, MPI_STATUS_IGNORE);
      });
    };
    if (rank == peer) {
      in_pieces([&](std::size_t first, int count) {
        MPI_Sendrecv(at(in, first), count, type_, peer, kTag, at(out, first), count, type_, peer,
                     kTag, comm, MPI_STATUS_IGNORE);
      });
    } else if (rank < peer) {
      send();
      receive();
    } else {
      receive();
      send();
    }
  }

  /// Whether this rank gives and takes in one buffer: where there is a root, only the root does.
  bool has_one_buffer() const {
    return memory_.in_place() && (!traits_of(verb_).has_root || rank_of(*algorithm_.comm) == kRoot);
  }
  /// The contribution to pass.
  const void* input() {
    if (!has_one_buffer()) return memory_.contribution();
    if (copy_) {
      std::memcpy(copy_.data(), memory_.contribution(), memory_.contribution_bytes());
      return copy_.data();
    }
    return verb_ == Verb::kScatter ? memory_.contribution() : MPI_IN_PLACE;
  }
  /// Where the result goes. A root that scatters in place says so here.
  void* output() const {
    return has_one_buffer() && !copy_ && verb_ == Verb::kScatter ? MPI_IN_PLACE : memory_.result();
  }

  /// Calls `call(first element, count)` for as many elements at a time as MPI counts, at least
  /// once.
  template <typename Call>
  void in_pieces(Call call) const {
    std::size_t first = 0;
    do {
      const std::size_t count = std::min(count_ - first, kMostElements);
      call(first, static_cast<int>(count));
      first += count;
    } while (first < count_);
  }

  const void* at(const void* elements, std::size_t first) const {
    if (elements == MPI_IN_PLACE) return elements;
    return static_cast<const std::byte*>(elements) + first * element_bytes_;
  }
  void* at(void* elements, std::size_t first) const {
    return static_cast<std::byte*>(elements) + first * element_bytes_;
  }

  Verb verb_;
  MPI_Datatype type_;
  MPI_Op op_;
  std::size_t element_bytes_, count_;
  int part_;
  CallerMemory memory_;
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
    // More about the build follows after a comma, or in further lines.
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

MpiSession::MpiSession() {
  allow_mpi_algorithms();
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
}

MpiSession::~MpiSession() { MPI_Finalize(); }

std::unique_ptr<CollectiveSystem> make_mpi_system() { return std::make_unique<MpiSystem>(); }

}  // namespace kolo::bench
