#include "comm/transport/ucx_transport.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "comm/transport/control_frames.h"
#include "comm/transport/message_matcher.h"
#include "comm/transport/ucx_library.h"
#include "comm/transport/ucx_peers.h"

namespace kolo {

namespace {

/// Tags of control frames have a source that no data message has, with sender and kind in low bits.
///
///   63..48   47..17  16        15..0
///   0xffff   0       goodbye?  source

constexpr std::uint64_t kNoSource = (std::uint64_t{1} << kTagSourceBits) - 1;
constexpr int kSourceShift = kTagBucketBits + kTagIterationBits + kTagOrdinalBits;
constexpr std::uint64_t kControlTag = kNoSource << kSourceShift;
constexpr std::uint64_t kControlMask = kControlTag;
constexpr std::uint64_t kWholeTag = ~std::uint64_t{0};

constexpr std::uint64_t kGoodbyeBit = std::uint64_t{1} << kTagSourceBits;

/// Limits the polls for data from a peer that has ended or for a cancelled receive. More data than
/// that can only come from other peers.
constexpr int kPollsBeforeAnEnd = 1'000;

class UcxTransportImpl final : public UcxTransport {
 public:
  explicit UcxTransportImpl(const Config& config)
      : config_(config),
        ucx_(load_ucx(config.library)),
        context_(make_ucp_context(ucx_, config.world_size, config.interface, config.address)),
        takes_device_memory_(takes_cuda_memory(ucx_, context_.get())),
        memory_(ucx_, context_.get()),
        worker_(make_ucp_worker(ucx_, context_.get())),
        peers_(ucx_, worker_.get(), config.world_size) {
    require_ucs(ucx_, ucx_.ucp_worker_get_efd(worker_.get(), &event_fd_), "UCX: event descriptor");
  }

  ~UcxTransportImpl() override { shutdown(false); }

  std::string address() const override {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    require_ucs(ucx_, ucx_.ucp_worker_get_address(worker_.get(), &address, &bytes),
                "UCX: own address");
    std::string copy(reinterpret_cast<const char*>(address), bytes);
    ucx_.ucp_worker_release_address(worker_.get(), address);
    return copy;
  }

  void connect(std::vector<std::string> addresses) override {
    peers_.set_addresses(std::move(addresses));
    for (const int rank : config_.control_peers)
      peers_.endpoint(peers_[rank], UcxChannel::kControl);
  }

  int rank() const override { return config_.rank; }
  int world_size() const override { return config_.world_size; }
  /// UCX reports this, and detects the kind of memory of each message itself.
  bool takes_device_memory() const override { return takes_device_memory_; }
  void expect_messages_in(std::span<std::byte> memory) override { memory_.add(memory); }

  void isend(int peer, const Tag& tag, std::span<const std::byte> data, Completion& done) override {
    Peer& to = peers_[peer];
    if (closed_) return;
    to.traffic.data_sent += data.size();
    done.state = Completion::State::kPending;
    Operation& operation = begin(peer, &done);
    send(to, UcxChannel::kData, pack(tag), data, operation);
  }

  void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) override {
    Peer& from = peers_[peer];
    if (closed_) return;
    // Only a rank with a connection learns that the peer's process has ended.
    peers_.endpoint(from, UcxChannel::kData);
    done.state = Completion::State::kPending;
    Operation& operation = begin(peer, &done);
    operation.capacity = data.size();
    operation.receives = true;
    ucp_request_param_t param = receive_param(operation);
    set_memory(param, data);
    settle_receive(operation, ucx_.ucp_tag_recv_nbx(worker_.get(), data.data(), data.size(),
                                                    pack(tag), kWholeTag, &param));
  }

  void abandon(const Tag& first) override { abandoned_.add(first); }

  bool cancel(Completion& done) override {
    if (done.state != Completion::State::kPending) return true;
    const auto operation = std::ranges::find(operations_, &done, &Operation::done);
    if (operation == operations_.end()) return true;  // not a message of this transport
    if (!operation->receives) return false;           // UCX cancels only receives
    if (operation->request != nullptr) {
      ucx_.ucp_request_cancel(worker_.get(), operation->request);
      for (int i = 0; operation->request != nullptr && i < kPollsBeforeAnEnd; ++i) {
        ucx_.ucp_worker_progress(worker_.get());
      }
      if (operation->request != nullptr) return false;  // its message is being received
    }
    if (done.state != Completion::State::kPending) return true;  // received meanwhile
    done.state = Completion::State::kIdle;
    end(*operation);
    return true;
  }

  void send_control(int peer, std::span<const std::byte> bytes) override {
    Peer& to = peers_[peer];
    if (closed_) return;
    to.traffic.control_sent += bytes.size();
    ++to.traffic.control_frames_sent;
    send_copy(to, UcxChannel::kControl, kControlTag, bytes);
  }

  bool receive_control(ControlFrame& frame) override { return arrivals_.take(frame); }

  bool poll() override {
    if (closed_) return false;
    bool moved = ucx_.ucp_worker_progress(worker_.get()) != 0;
    // Reads control frames before it notes a peer's end: the peer may have sent the reason.
    for (int i = 0; peers_.has_broken() && i < kPollsBeforeAnEnd; ++i) {
      if (ucx_.ucp_worker_progress(worker_.get()) == 0) break;
    }
    while (take_control_message()) moved = true;
    return note_lost_peer() || moved;
  }

  bool arm() override {
    if (closed_) return true;
    const ucs_status_t status = ucx_.ucp_worker_arm(worker_.get());
    if (status != UCS_OK && status != UCS_ERR_BUSY) {
      fail(ErrorCode::kIo, -1, std::string("UCX cannot wait: ") + ucx_.ucs_status_string(status));
    }
    return status == UCS_OK;
  }

  void disarm() override {}

  std::vector<int> wake_fds() const override {
    if (closed_) return {};
    return {event_fd_};
  }

  /// Also sends to peers that only send to this rank; they would otherwise report a broken
  /// connection.
  void say_goodbye() override {
    if (closed_) return;
    peers_.for_each_open([&](Peer& peer, UcxChannel lane) {
      // A goodbye must not overtake control frames, which may hold the reason.
      if (lane == UcxChannel::kControl || !has_unsent_frames(peer.rank)) send_goodbye(peer, lane);
    });
    for (int rank = 0; rank < config_.world_size; ++rank) {
      Peer& peer = peers_[rank];
      const bool is_open = peer.endpoints != decltype(peer.endpoints){};
      if (is_open || peer.said_goodbye || peer.traffic.data_received == 0) continue;
      send_goodbye(peer, UcxChannel::kControl);
    }
  }

  void shutdown(bool orderly) override {
    if (closed_) return;
    const TimePoint deadline =
        TimePoint(std::chrono::steady_clock::now()) + config_.shutdown_within;
    const auto say_goodbye_on = [&](Peer& peer, UcxChannel lane) { send_goodbye(peer, lane); };
    if (orderly) peers_.for_each_open(say_goodbye_on);  // before each connection ends
    closed_ = true;
    for (Operation& operation : operations_) {
      if (operation.receives && operation.request != nullptr) {
        ucx_.ucp_request_cancel(worker_.get(), operation.request);
      }
    }
    if (orderly) peers_.flush(deadline);
    peers_.close(deadline);
    drop_unclaimed(orderly);
    worker_.reset();  // afterwards UCX accesses no buffer of the caller
    memory_.clear();
    for (Operation& operation : operations_) {
      if (operation.done != nullptr) operation.done->state = Completion::State::kIdle;
    }
    operations_.clear();
    unused_.clear();
    arrivals_.clear();
  }

  std::optional<Error> failure() const override { return failure_; }
  TrafficCounters traffic(int peer) const override { return peers_[peer].traffic; }
  const ForeignFrames& foreign_frames() const override { return foreign_; }

 private:
  using Peer = UcxPeers::Peer;

  /// One UCX request. It is in use while `done` or `arrival` is set or `copy` is being sent.
  struct Operation {
    UcxTransportImpl* owner = nullptr;
    int peer = -1;
    Completion* done = nullptr;
    ControlArrivals::Arrival* arrival = nullptr;
    void* request = nullptr;
    bool receives = false;
    bool called_back = false;
    std::size_t capacity = 0;
    std::vector<std::byte> copy;
  };

  Operation& begin(int peer, Completion* done) {
    if (unused_.empty()) {
      operations_.emplace_back();
      unused_.push_back(&operations_.back());
    }
    Operation& operation = *unused_.back();
    unused_.pop_back();
    operation.owner = this;
    operation.peer = peer;
    operation.done = done;
    operation.called_back = false;
    return operation;
  }

  void end(Operation& operation) {
    operation.done = nullptr;
    operation.arrival = nullptr;
    operation.request = nullptr;
    operation.receives = false;
    unused_.push_back(&operation);
  }

  // --- Sending --------------------------------------------------------------------------------

  void send(Peer& peer, UcxChannel lane, std::uint64_t tag, std::span<const std::byte> data,
            Operation& operation) {
    const ucp_ep_h endpoint = peers_.endpoint(peer, lane);
    if (endpoint == nullptr) return;  // stays pending; `poll` reports the failure
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.user_data = &operation;
    set_memory(param, data);
    param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
      auto& sent = *static_cast<Operation*>(user_data);
      sent.owner->ucx_.ucp_request_free(request);
      sent.request = nullptr;
      sent.owner->finish_send(sent, status);
    };
    const ucs_status_ptr_t request =
        ucx_.ucp_tag_send_nbx(endpoint, data.data(), data.size(), tag, &param);
    if (UCS_PTR_IS_PTR(request)) {
      operation.request = request;
    } else {
      finish_send(operation, UCS_PTR_STATUS(request));
    }
  }

  void set_memory(ucp_request_param_t& param, std::span<const std::byte> data) const {
    param.memh = memory_.find(data);
    if (param.memh != nullptr) param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    // If UCX knows devices, it otherwise looks each address up. Registered memory is the host's.
    if (param.memh == nullptr && takes_device_memory_) return;
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
  }

  void send_copy(Peer& peer, UcxChannel lane, std::uint64_t tag, std::span<const std::byte> bytes) {
    Operation& operation = begin(peer.rank, nullptr);
    operation.copy.assign(bytes.begin(), bytes.end());
    send(peer, lane, tag | static_cast<std::uint64_t>(config_.rank), operation.copy, operation);
  }

  void finish_send(Operation& operation, ucs_status_t status) {
    if (status != UCS_OK) {
      // The operation stays pending until shutdown.
      return peers_.note_status(peers_[operation.peer], status);
    }
    if (operation.done != nullptr) operation.done->state = Completion::State::kDone;
    end(operation);
  }

  void send_goodbye(Peer& peer, UcxChannel lane) {
    send_copy(peer, lane, kControlTag | kGoodbyeBit, {});
  }

  /// Whether control frames to this peer are being sent.
  bool has_unsent_frames(int peer) const {
    return std::ranges::any_of(operations_, [&](const Operation& each) {
      return each.peer == peer && each.done == nullptr && each.arrival == nullptr &&
             each.request != nullptr;
    });
  }

  /// Takes messages without a receive, because UCX would warn of them. Control messages are
  /// ignored, but after an agreed end a data message is an error.
  void drop_unclaimed(bool orderly) {
    ucx_.ucp_worker_progress(worker_.get());
    ucp_tag_recv_info_t info{};
    while (const ucp_tag_message_h message = ucx_.ucp_tag_probe_nb(worker_.get(), 0, 0, 1, &info)) {
      discard(message);
      const bool is_control = (info.sender_tag & kControlMask) == kControlTag;
      const Tag tag = unpack(info.sender_tag);
      const bool is_foreign = tag.source >= static_cast<std::uint32_t>(config_.world_size);
      const bool is_stray = !is_control && !is_foreign && !abandoned_.covers(tag);
      if (orderly && is_stray && !failure_) {
        failure_ = stray_message(config_.rank, tag, info.length);
        log::error(failure_->to_string());
      }
    }
  }

  void discard(ucp_tag_message_h message) {
    const ucp_request_param_t param{};
    const ucs_status_ptr_t request =
        ucx_.ucp_tag_msg_recv_nbx(worker_.get(), nullptr, 0, message, &param);
    if (UCS_PTR_IS_PTR(request)) ucx_.ucp_request_free(request);
  }

  // --- Receiving ------------------------------------------------------------------------------

  /// Sets a callback even for messages that were received already: UCX 1.13 passes the length only
  /// to the callback, which may run before the call that starts the receive returns.
  static ucp_request_param_t receive_param(Operation& operation) {
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.user_data = &operation;
    param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* received,
                       void* user_data) {
      const bool has_length = status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED;
      const std::size_t bytes = has_length ? received->length : 0;
      auto& finished = *static_cast<Operation*>(user_data);
      finished.owner->ucx_.ucp_request_free(request);
      finished.request = nullptr;
      finished.called_back = true;
      finished.owner->finish_receive(finished, status, bytes);
    };
    return param;
  }

  void settle_receive(Operation& operation, ucs_status_ptr_t request) {
    if (UCS_PTR_IS_ERR(request)) {
      finish_receive(operation, UCS_PTR_STATUS(request), 0);
    } else if (!operation.called_back) {
      operation.request = request;
    }
  }

  void finish_receive(Operation& operation, ucs_status_t status, std::size_t bytes) {
    if (status == UCS_ERR_CANCELED) return;  // `shutdown` makes it idle
    if (status == UCS_ERR_MESSAGE_TRUNCATED) {
      if (!failure_) {
        failure_ = message_too_long(config_.rank, operation.peer, bytes, operation.capacity);
      }
      return;
    }
    if (status != UCS_OK) {
      peers_.note_status(peers_[operation.peer], status);
      return;
    }
    TrafficCounters& traffic = peers_[operation.peer].traffic;
    if (operation.arrival != nullptr) {
      traffic.control_received += bytes;
      operation.arrival->complete();
    } else {
      traffic.data_received += bytes;
      operation.done->bytes = bytes;
      operation.done->state = Completion::State::kDone;
    }
    end(operation);
  }

  bool take_control_message() {
    ucp_tag_recv_info_t info{};
    const ucp_tag_message_h message =
        ucx_.ucp_tag_probe_nb(worker_.get(), kControlTag, kControlMask, 1, &info);
    if (message == nullptr) return false;
    const auto source = static_cast<int>(info.sender_tag & kNoSource);
    const bool is_peer = source < config_.world_size && source != config_.rank;
    if (!is_peer || info.length > config_.longest_control_frame) {
      foreign_.drop(source, is_peer ? "it is too long" : "there is no such peer");
      discard(message);
      return true;
    }
    Peer& peer = peers_[source];
    ControlArrivals::Arrival& arrival = arrivals_.announce(source, info.length);
    if ((info.sender_tag & kGoodbyeBit) != 0) {
      peer.said_goodbye = true;
      arrival.drop();
    } else {
      peers_.endpoint(peer, UcxChannel::kControl);
    }
    Operation& operation = begin(source, nullptr);
    operation.arrival = &arrival;
    const ucp_request_param_t param = receive_param(operation);
    const std::span<std::byte> memory = arrival.memory();
    settle_receive(operation, ucx_.ucp_tag_msg_recv_nbx(worker_.get(), memory.data(), memory.size(),
                                                        message, &param));
    return true;
  }

  // --- Failures -------------------------------------------------------------------------------

  /// Returns whether there is a new failure.
  bool note_lost_peer() {
    const Peer* lost = peers_.take_broken();
    if (lost == nullptr || failure_) return false;
    fail(ErrorCode::kPeerLost, lost->rank,
         "the connection to rank " + std::to_string(lost->rank) +
             " broke: " + ucx_.ucs_status_string(lost->status));
    return true;
  }

  void fail(ErrorCode code, int peer, std::string what) {
    if (failure_) return;
    failure_ = Error{.code = code, .rank = config_.rank, .peer = peer, .what = std::move(what)};
  }

  const Config config_;
  const UcxLibrary& ucx_;
  UcpContext context_;
  const bool takes_device_memory_;
  UcxMemory memory_;
  UcpWorker worker_;
  int event_fd_ = -1;  ///< The event descriptor of the worker.
  UcxPeers peers_;
  std::deque<Operation> operations_;
  std::vector<Operation*> unused_;
  ControlArrivals arrivals_;
  AbandonedRuns abandoned_;
  ForeignFrames foreign_;
  std::optional<Error> failure_;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<UcxTransport> UcxTransport::create(const Config& config) {
  check(config.rank >= 0 && config.rank < config.world_size, "the rank is not of the world");
  check(config.world_size < static_cast<int>(kNoSource), "too many ranks for the tags of messages");
  return std::make_unique<UcxTransportImpl>(config);
}

bool UcxTransport::uses_tcp() { return ucx_uses_tcp(); }

}  // namespace kolo
