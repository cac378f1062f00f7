#include "tests/support/device/process_communicator.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/mutex.h"
#include "comm/base/unique_handle.h"
#include "comm/kernels/reduce_kernels.h"
#include "tests/support/device/host_stream.h"

namespace kolo::test {
namespace {

constexpr std::size_t kBytes = std::size_t{128} << 20;  // for the contribution of a rank, sparse
constexpr std::size_t kMostRanks = 16;
constexpr std::size_t kIdBytes = 64;
/// A collective takes at least this long, so that a program that does not wait for one sees memory
/// without its result.
constexpr std::chrono::microseconds kLatency{500};

/// The memory in which a rank publishes its contributions.
struct Mailbox {
  std::atomic<std::uint64_t> published;  ///< Number of calls whose contribution was written.
  std::atomic<std::uint64_t> consumed;   ///< Number of calls whose contributions were read.
  alignas(64) std::byte data[kBytes];
};

enum class Kind : std::uint8_t { kAllReduce, kReduceParts, kGatherParts, kExchange };

/// A copy of a `GroupTensor` that owns its counts.
struct Tensor {
  const std::byte* source;
  std::byte* target;
  std::vector<std::size_t> counts;

  std::size_t before(std::size_t part) const {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(part),
                           std::size_t{0});
  }
  std::size_t total() const { return before(counts.size()); }
};

struct Call {
  Kind kind;
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  std::vector<Tensor> tensors = {};
  std::vector<GroupPart> sent = {}, received = {};
};

/// State that the tasks of one communicator share.
class Exchange {
 public:
  Exchange(std::vector<Mailbox*> boxes, int rank, std::atomic<int>& completed)
      : boxes_(std::move(boxes)), rank_(static_cast<std::size_t>(rank)), completed_(completed) {}

  std::size_t size() const { return boxes_.size(); }
  std::uint64_t next() { return begun_++; }

  /// Makes call `number`. Returns true if it is complete.
  bool attempt(std::uint64_t number, const Call& call) {
    const MutexLock lock(mutex_);
    if (is_aborted_) return true;
    if (number != done_) return false;
    if (!all_have(&Mailbox::consumed, number)) return false;
    if (!is_written_) {
      write(call);
      is_written_ = true;
      boxes_[rank_]->published.store(number + 1, std::memory_order_release);
    }
    if (!all_have(&Mailbox::published, number + 1)) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!due_) due_ = now + kLatency;
    if (now < *due_) return false;
    read(call);
    due_.reset();
    is_written_ = false;
    ++done_;
    ++completed_;
    boxes_[rank_]->consumed.store(done_, std::memory_order_release);
    return true;
  }

  void abort() {
    const MutexLock lock(mutex_);
    is_aborted_ = true;
  }
  bool is_idle() {
    const MutexLock lock(mutex_);
    return done_ == begun_;
  }

 private:
  bool all_have(std::atomic<std::uint64_t> Mailbox::*counter, std::uint64_t least) const {
    for (const Mailbox* box : boxes_) {
      if ((box->*counter).load(std::memory_order_acquire) < least) return false;
    }
    return true;
  }

  void append(const void* data, std::size_t bytes) {
    ensure(written_ + bytes <= kBytes, "a contribution is larger than the mailbox");
    if (bytes > 0) std::memcpy(boxes_[rank_]->data + written_, data, bytes);
    written_ += bytes;
  }

  void write(const Call& call) {
    const std::size_t size = size_of(call.dtype);
    written_ = 0;
    for (const Tensor& tensor : call.tensors) {
      const bool gathers = call.kind == Kind::kGatherParts;
      append(tensor.source, size * (gathers ? tensor.counts[rank_] : tensor.total()));
    }
    // An exchange begins with a table of the numbers of elements.
    for (const GroupPart& part : call.sent) append(&part.count, sizeof part.count);
    for (const GroupPart& part : call.sent) append(part.data, size * part.count);
  }

  void read(const Call& call) {
    if (call.kind == Kind::kExchange) return receive(call);
    std::vector<std::size_t> offsets(boxes_.size());  // by rank, in bytes
    for (const Tensor& tensor : call.tensors) {
      if (call.kind == Kind::kGatherParts) {
        gather(tensor, size_of(call.dtype), offsets);
      } else {
        combine(tensor, call, offsets);
      }
    }
  }

  void gather(const Tensor& tensor, std::size_t size, std::vector<std::size_t>& offsets) {
    for (std::size_t part = 0; part < boxes_.size(); ++part) {
      const std::size_t bytes = size * tensor.counts[part];
      if (bytes == 0) continue;
      std::memcpy(tensor.target + size * tensor.before(part), boxes_[part]->data + offsets[part],
                  bytes);
      offsets[part] += bytes;
    }
  }

  void combine(const Tensor& tensor, const Call& call, std::vector<std::size_t>& offsets) {
    const std::size_t size = size_of(call.dtype);
    const bool is_whole = call.kind == Kind::kAllReduce;
    const std::size_t first = is_whole ? 0 : tensor.before(rank_);
    const std::size_t count = is_whole ? tensor.total() : tensor.counts[rank_];
    std::vector<const void*> sources;
    for (std::size_t rank = 0; rank < boxes_.size(); ++rank) {
      sources.push_back(boxes_[rank]->data + offsets[rank] + size * first);
      offsets[rank] += size * tensor.total();
    }
    const double scale =
        call.op == ReduceOp::kAverage ? 1.0 / static_cast<double>(boxes_.size()) : 1.0;
    if (count > 0) reduce(call.dtype, call.op, tensor.target, sources, count, scale);
  }

  void receive(const Call& call) {
    const std::size_t entries = call.received.size();
    for (std::size_t i = 0; i < entries; ++i) {
      const std::size_t from = i % boxes_.size();
      const std::size_t mine = i - from + rank_;  // the entry for this rank in the table of `from`
      std::vector<std::size_t> counts(entries);
      std::memcpy(counts.data(), boxes_[from]->data, entries * sizeof(std::size_t));
      ensure(counts[mine] == call.received[i].count, "the lengths of an exchange differ");
      const std::size_t before = std::accumulate(
          counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(mine), std::size_t{0});
      const std::size_t bytes = counts[mine] * size_of(call.dtype);
      if (bytes == 0) continue;
      std::memcpy(call.received[i].data,
                  boxes_[from]->data + entries * sizeof(std::size_t) + before * size_of(call.dtype),
                  bytes);
    }
  }

  const std::vector<Mailbox*> boxes_;  // by rank; mapped until the process ends
  const std::size_t rank_;
  std::atomic<int>& completed_;
  std::atomic<std::uint64_t> begun_{0};
  Mutex mutex_;
  bool is_aborted_ = false;
  bool is_written_ = false;
  std::size_t written_ = 0;  // bytes of this call's contribution
  std::uint64_t done_ = 0;
  std::optional<std::chrono::steady_clock::time_point> due_;
};

class ProcessCommunicator final : public DeviceCommunicator {
 public:
  ProcessCommunicator(std::shared_ptr<Exchange> exchange, int rank, Device& device)
      : exchange_(std::move(exchange)), rank_(rank), device_(device) {}
  ~ProcessCommunicator() override { exchange_->abort(); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(exchange_->size()); }
  std::string describe() const override { return fmt::format("processes, {} ranks", size()); }
  DeviceMemory allocate(std::size_t bytes) override {
    return device_.allocate(bytes, MemoryKind::kDevice);
  }

  void reduce_scatter(Stream& stream, const void* whole, void* part, std::size_t part_count,
                      DType dtype, ReduceOp op) override {
    const std::vector<std::size_t> counts(exchange_->size(), part_count);
    const GroupTensor tensor{.source = whole, .target = part, .counts = counts};
    reduce_parts(stream, {&tensor, 1}, dtype, op);
  }
  void all_gather(Stream& stream, const void* part, void* whole, std::size_t part_count,
                  DType dtype) override {
    const std::vector<std::size_t> counts(exchange_->size(), part_count);
    const GroupTensor tensor{.source = part, .target = whole, .counts = counts};
    gather_parts(stream, {&tensor, 1}, dtype);
  }
  void reduce_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype,
                    ReduceOp op) override {
    enqueue(stream,
            {.kind = Kind::kReduceParts, .dtype = dtype, .op = op, .tensors = kept(tensors)});
  }
  void gather_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype) override {
    enqueue(stream, {.kind = Kind::kGatherParts, .dtype = dtype, .tensors = kept(tensors)});
  }
  void exchange(Stream& stream, std::span<const GroupPart> sent,
                std::span<const GroupPart> received, DType dtype) override {
    enqueue(stream, {.kind = Kind::kExchange,
                     .dtype = dtype,
                     .sent = {sent.begin(), sent.end()},
                     .received = {received.begin(), received.end()}});
  }
  void all_reduce(Stream& stream, const void* source, void* target, std::size_t count, DType dtype,
                  ReduceOp op) override {
    const GroupTensor tensor{.source = source, .target = target, .counts = {&count, 1}};
    enqueue(stream,
            {.kind = Kind::kAllReduce, .dtype = dtype, .op = op, .tensors = kept({&tensor, 1})});
  }

  std::optional<Error> async_error() override { return std::nullopt; }
  bool abort(std::chrono::milliseconds) override {
    exchange_->abort();
    state_ = CommunicatorState::kAborted;
    return true;
  }
  CommunicatorState finalize() override {
    if (state_ == CommunicatorState::kActive && exchange_->is_idle()) {
      state_ = CommunicatorState::kFinalized;
    }
    return state_ == CommunicatorState::kActive ? CommunicatorState::kFinalizing : state_;
  }

 private:
  static std::vector<Tensor> kept(std::span<const GroupTensor> tensors) {
    std::vector<Tensor> all;
    for (const GroupTensor& each : tensors) {
      all.push_back({.source = static_cast<const std::byte*>(each.source),
                     .target = static_cast<std::byte*>(each.target),
                     .counts = {each.counts.begin(), each.counts.end()}});
    }
    return all;
  }

  void enqueue(Stream& stream, Call call) {
    as_host(stream).enqueue([exchange = exchange_, number = exchange_->next(),
                             call = std::move(call)] { return exchange->attempt(number, call); });
  }

  const std::shared_ptr<Exchange> exchange_;
  const int rank_;
  Device& device_;
  CommunicatorState state_ = CommunicatorState::kActive;
};

}  // namespace

std::string ProcessCommunicators::make_room() {
  FileDescriptor file(::memfd_create("room of stand-ins", MFD_CLOEXEC));
  constexpr auto kAll = static_cast<off_t>(kMostRanks * sizeof(Mailbox));
  ensure(file && ::ftruncate(file.get(), kAll) == 0, "no memory for a room");
  return fmt::format("/proc/{}/fd/{}", ::getpid(), file.release());
}

std::unique_ptr<DeviceCommunicator> ProcessCommunicators::enter(const std::string& room, int rank,
                                                                int size, Device& device) {
  const FileDescriptor file(::open(room.c_str(), O_RDWR | O_CLOEXEC));
  ensure(static_cast<bool>(file), "the room is not there");
  const auto count = static_cast<std::size_t>(size);
  ensure(count <= kMostRanks, "too many ranks for a room");
  void* const mapped =
      ::mmap(nullptr, count * sizeof(Mailbox), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ensure(mapped != MAP_FAILED, "mmap of a room");
  std::vector<Mailbox*> boxes(count);
  std::iota(boxes.begin(), boxes.end(), static_cast<Mailbox*>(mapped));
  return std::make_unique<ProcessCommunicator>(
      std::make_shared<Exchange>(std::move(boxes), rank, completed_), rank, device);
}

namespace {

class Connecting final : public ConnectingCommunicator {
 public:
  explicit Connecting(std::unique_ptr<DeviceCommunicator> group) : group_(std::move(group)) {}
  std::unique_ptr<DeviceCommunicator> poll() override { return std::move(group_); }

 private:
  std::unique_ptr<DeviceCommunicator> group_;
};

class Connector final : public CommunicatorConnector {
 public:
  Connector(ProcessCommunicators& all, Device& device) : all_(all), device_(device) {}
  std::size_t unique_id_bytes() const override { return kIdBytes; }
  std::vector<std::byte> make_unique_id() override {
    const std::string room = all_.make_room();
    std::vector<std::byte> id(kIdBytes);
    std::memcpy(id.data(), room.data(), room.size());
    return id;
  }
  std::unique_ptr<ConnectingCommunicator> connect(std::span<const std::byte> unique_id, int rank,
                                                  int size) override {
    const std::string room(reinterpret_cast<const char*>(unique_id.data()));
    return std::make_unique<Connecting>(all_.enter(room, rank, size, device_));
  }

 private:
  ProcessCommunicators& all_;
  Device& device_;
};

}  // namespace

std::unique_ptr<CommunicatorConnector> ProcessCommunicators::connector(Device& device) {
  return std::make_unique<Connector>(*this, device);
}

}  // namespace kolo::test
