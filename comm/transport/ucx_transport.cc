#include "comm/transport/ucx_transport.h"

#include <array>
#include <deque>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "comm/transport/control_arrivals.h"
#include "comm/transport/message_matcher.h"
#include "comm/transport/ucx_handles.h"
#include "comm/transport/ucx_memory.h"

namespace kolo {

namespace {

/// Control frames carry a source that no data message has; their real source and kind stand
/// in the lowest bits.
///
///   63..58  57..42   41..17  16        15..0
///   0       0xffff   0       goodbye?  source

constexpr std::uint64_t kNoSource = (std::uint64_t{1} << kTagSourceBits) - 1;
constexpr int kSourceShift = kTagBucketBits + kTagIterationBits + kTagOrdinalBits;
constexpr std::uint64_t kControlTag = kNoSource << kSourceShift;
constexpr std::uint64_t kControlMask = kControlTag;
constexpr std::uint64_t kWholeTag = ~std::uint64_t{0};

constexpr std::uint64_t kGoodbyeBit = std::uint64_t{1} << kTagSourceBits;

/// Two connections to a peer, each made when it is first needed: a control frame never waits for
/// data that was handed to the network before it.
enum class Lane : std::uint8_t { kData, kControl };
constexpr std::size_t kLanes = 2;

}  // namespace

class UcxTransport::Impl {
 public:
  explicit Impl(const Config& config)
      : config_(config),
        context_(make_ucp_context(config.world_size)),
        takes_device_memory_(takes_cuda_memory(context_.get())),
        memory_(context_.get()),
        worker_(make_ucp_worker(context_.get())) {
    for (int peer = 0; peer < config.world_size; ++peer) peers_.emplace_back().owner = this;
    require_ucs(ucp_worker_get_efd(worker_.get(), &event_fd_), "UCX: event descriptor");
  }

  std::string address() const {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    require_ucs(ucp_worker_get_address(worker_.get(), &address, &bytes), "UCX: own address");
    std::string copy(reinterpret_cast<const char*>(address), bytes);
    ucp_worker_release_address(worker_.get(), address);
    return copy;
  }

  void connect(std::vector<std::string> addresses) {
    check(addresses.size() == peers_.size(), "UCX needs one address per rank");
    addresses_ = std::move(addresses);
  }

  bool takes_device_memory() const { return takes_device_memory_; }
  void expect_messages_in(std::span<std::byte> memory) { memory_.add(memory); }

  void isend(int peer, const Tag& tag, std::span<const std::byte> data, Completion& done) {
    Peer& to = peer_of(peer);
    if (closed_) return;
    to.traffic.data_sent += data.size();
    done.state = Completion::State::kPending;
    Operation& operation = begin(peer, &done);
    send(to, Lane::kData, pack(tag), data, operation);
  }

  void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) {
    Peer& from = peer_of(peer);
    if (closed_) return;
    endpoint_of(from,
                Lane::kData);  // Only who has an endpoint learns that the peer's process ended.
    done.state = Completion::State::kPending;
    Operation& operation = begin(peer, &done);
    operation.capacity = data.size();
    operation.receives = true;
    ucp_request_param_t param = receive_param(operation);
    set_memory(param, data);
    settle_receive(operation, ucp_tag_recv_nbx(worker_.get(), data.data(), data.size(), pack(tag),
                                               kWholeTag, &param));
  }

  void abandon(const Tag& first) { abandoned_.add(first); }

  void send_control(int peer, std::span<const std::byte> bytes) {
    Peer& to = peer_of(peer);
    if (closed_) return;
    to.traffic.control_sent += bytes.size();
    ++to.traffic.control_frames_sent;
    send_copy(to, Lane::kControl, kControlTag, bytes);
  }

  bool receive_control(ControlFrame& frame) { return arrivals_.take(frame); }

  bool poll() {
    if (closed_) return false;
    bool moved = ucp_worker_progress(worker_.get()) != 0;
    while (take_control_message()) moved = true;
    return note_lost_peer() || moved;
  }

  bool arm() {
    if (closed_) return true;
    const ucs_status_t status = ucp_worker_arm(worker_.get());
    if (status != UCS_OK && status != UCS_ERR_BUSY) {
      fail(ErrorCode::kIo, -1, std::string("UCX cannot wait: ") + ucs_status_string(status));
    }
    return status == UCS_OK;
  }

  std::vector<int> wake_fds() const {
    if (closed_) return {};
    return {event_fd_};
  }

  void shutdown(bool orderly) {
    if (closed_) return;
    const TimePoint deadline =
        TimePoint(std::chrono::steady_clock::now()) + config_.shutdown_within;
    if (orderly) say_goodbye();
    closed_ = true;
    for (Operation& operation : operations_) {
      if (operation.receives && operation.request != nullptr) {
        ucp_request_cancel(worker_.get(), operation.request);
      }
    }
    if (orderly) flush_until(deadline);
    std::vector<ucs_status_ptr_t> closing;
    for (Peer& peer : peers_) {
      for (ucp_ep_h& endpoint : peer.endpoints) {
        if (endpoint == nullptr) continue;
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        closing.push_back(ucp_ep_close_nbx(endpoint, &param));
        endpoint = nullptr;
      }
    }
    wait_for(closing, deadline);
    drop_unclaimed(orderly);
    worker_.reset();  // Nothing touches a user's buffer after this.
    memory_.clear();
    for (Operation& operation : operations_) {
      if (operation.done != nullptr) operation.done->state = Completion::State::kIdle;
    }
    operations_.clear();
    unused_.clear();
    arrivals_.clear();
  }

  const Config& config() const { return config_; }
  const std::optional<Error>& failure() const { return failure_; }
  TrafficCounters traffic(int peer) { return peer_of(peer).traffic; }

 private:
  struct Peer {
    Impl* owner = nullptr;
    std::array<ucp_ep_h, kLanes> endpoints = {};
    ucs_status_t status = UCS_OK;  ///< Of the connections.
    bool said_goodbye = false;
    TrafficCounters traffic;
  };

  /// One UCX request of ours. In use while `done` or `arrival` is set or a copy is being sent.
  struct Operation {
    Impl* owner = nullptr;
    int peer = -1;
    Completion* done = nullptr;
    ControlArrivals::Arrival* arrival = nullptr;
    void* request = nullptr;
    bool receives = false;
    bool called_back = false;
    std::size_t capacity = 0;
    std::vector<std::byte> copy;
  };

  Peer& peer_of(int peer) {
    check(peer >= 0 && peer < config_.world_size, "no such rank");
    return peers_[static_cast<std::size_t>(peer)];
  }

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

  std::size_t index_of(const Peer& peer) const {
    return static_cast<std::size_t>(&peer - peers_.data());
  }

  ucp_ep_h endpoint_of(Peer& peer, Lane lane) {
    ucp_ep_h& endpoint = peer.endpoints[static_cast<std::size_t>(lane)];
    if (endpoint != nullptr || peer.status != UCS_OK) return endpoint;
    const std::size_t index = index_of(peer);
    ensure(index < addresses_.size(), "UCX is used before connect()");
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(addresses_[index].data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* lost, ucp_ep_h, ucs_status_t status) {
      auto& broken = *static_cast<Peer*>(lost);
      broken.owner->note_status(broken, status);
    };
    params.err_handler.arg = &peer;
    const ucs_status_t status = ucp_ep_create(worker_.get(), &params, &endpoint);
    if (status != UCS_OK) note_status(peer, status);
    return endpoint;
  }

  void send(Peer& peer, Lane lane, std::uint64_t tag, std::span<const std::byte> data,
            Operation& operation) {
    const ucp_ep_h endpoint = endpoint_of(peer, lane);
    if (endpoint == nullptr) return;  // Stays pending; `poll` reports why.
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.user_data = &operation;
    set_memory(param, data);
    param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
      ucp_request_free(request);
      auto& sent = *static_cast<Operation*>(user_data);
      sent.request = nullptr;
      sent.owner->finish_send(sent, status);
    };
    const ucs_status_ptr_t request =
        ucp_tag_send_nbx(endpoint, data.data(), data.size(), tag, &param);
    if (UCS_PTR_IS_PTR(request)) {
      operation.request = request;
    } else {
      finish_send(operation, UCS_PTR_STATUS(request));
    }
  }

  void set_memory(ucp_request_param_t& param, std::span<const std::byte> data) const {
    param.memh = memory_.find(data);
    if (param.memh != nullptr) param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  }

  void send_copy(Peer& peer, Lane lane, std::uint64_t tag, std::span<const std::byte> bytes) {
    Operation& operation = begin(narrow<int>(index_of(peer)), nullptr);
    operation.copy.assign(bytes.begin(), bytes.end());
    send(peer, lane, tag | static_cast<std::uint64_t>(config_.rank), operation.copy, operation);
  }

  void finish_send(Operation& operation, ucs_status_t status) {
    if (status != UCS_OK) {
      note_status(peer_of(operation.peer), status);  // The operation stays pending until shutdown.
      return;
    }
    if (operation.done != nullptr) operation.done->state = Completion::State::kDone;
    end(operation);
  }

  /// Calls visit(peer, lane) for every connection to a peer that is still there.
  template <typename Visit>
  void for_each_connection(Visit visit) {
    for (Peer& peer : peers_) {
      for (const Lane lane : {Lane::kData, Lane::kControl}) {
        const bool is_open = peer.endpoints[static_cast<std::size_t>(lane)] != nullptr;
        if (is_open && peer.status == UCS_OK && !peer.said_goodbye) visit(peer, lane);
      }
    }
  }

  /// On every connection, so that its goodbye is there before its end.
  void say_goodbye() {
    for_each_connection(
        [&](Peer& peer, Lane lane) { send_copy(peer, lane, kControlTag | kGoodbyeBit, {}); });
  }

  /// Sees what was sent, the goodbyes last, out of this process.
  void flush_until(TimePoint deadline) {
    std::vector<ucs_status_ptr_t> flushing;
    for_each_connection([&](Peer& peer, Lane lane) {
      const ucp_request_param_t param{};
      flushing.push_back(ucp_ep_flush_nbx(peer.endpoints[static_cast<std::size_t>(lane)], &param));
    });
    wait_for(flushing, deadline);
  }

  void wait_for(const std::vector<ucs_status_ptr_t>& requests, TimePoint deadline) {
    for (const ucs_status_ptr_t request : requests) {
      if (!UCS_PTR_IS_PTR(request)) continue;
      while (ucp_request_check_status(request) == UCS_INPROGRESS &&
             TimePoint(std::chrono::steady_clock::now()) < deadline) {
        ucp_worker_progress(worker_.get());
      }
      ucp_request_free(request);
    }
  }

  /// Takes what nobody has taken, since UCX warns of it otherwise. Control messages may come too
  /// late to matter, but after an agreed end a data message has lost its receive.
  void drop_unclaimed(bool orderly) {
    ucp_worker_progress(worker_.get());
    ucp_tag_recv_info_t info{};
    while (const ucp_tag_message_h message = ucp_tag_probe_nb(worker_.get(), 0, 0, 1, &info)) {
      const ucp_request_param_t param{};
      const ucs_status_ptr_t request =
          ucp_tag_msg_recv_nbx(worker_.get(), nullptr, 0, message, &param);
      if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
      const bool is_control = (info.sender_tag & kControlMask) == kControlTag;
      const bool is_stray = !is_control && !abandoned_.covers(unpack(info.sender_tag));
      if (orderly && is_stray && !failure_) {
        failure_ = stray_message(config_.rank, unpack(info.sender_tag), info.length);
        log::error(failure_->to_string());
      }
    }
  }

  // --- Receiving ------------------------------------------------------------------------------

  /// The callback is asked for even when the message is there: UCX 1.13 tells its length nowhere
  /// else. It may then run before the call that starts the receive returns.
  static ucp_request_param_t receive_param(Operation& operation) {
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.user_data = &operation;
    param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* received,
                       void* user_data) {
      const std::size_t bytes = status == UCS_OK ? received->length : 0;
      ucp_request_free(request);
      auto& finished = *static_cast<Operation*>(user_data);
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
    if (status == UCS_ERR_CANCELED) return;  // By shutdown, which makes it idle.
    if (status == UCS_ERR_MESSAGE_TRUNCATED) {
      if (!failure_) {
        failure_ = message_too_long(config_.rank, operation.peer, bytes, operation.capacity);
      }
      return;
    }
    if (status != UCS_OK) {
      note_status(peer_of(operation.peer), status);
      return;
    }
    TrafficCounters& traffic = peer_of(operation.peer).traffic;
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
        ucp_tag_probe_nb(worker_.get(), kControlTag, kControlMask, 1, &info);
    if (message == nullptr) return false;
    const auto source = static_cast<int>(info.sender_tag & kNoSource);
    Peer& peer = peer_of(source);
    ControlArrivals::Arrival& arrival = arrivals_.announce(source, info.length);
    if ((info.sender_tag & kGoodbyeBit) != 0) {
      peer.said_goodbye = true;
      arrival.drop();
    } else {
      endpoint_of(peer, Lane::kControl);
    }
    Operation& operation = begin(source, nullptr);
    operation.arrival = &arrival;
    const ucp_request_param_t param = receive_param(operation);
    const std::span<std::byte> memory = arrival.memory();
    settle_receive(operation, ucp_tag_msg_recv_nbx(worker_.get(), memory.data(), memory.size(),
                                                   message, &param));
    return true;
  }

  // --- Failures -------------------------------------------------------------------------------

  void note_status(Peer& peer, ucs_status_t status) {
    if (peer.status == UCS_OK) peer.status = status;
    has_broken_peer_ = true;
  }

  /// Returns whether a failure is new.
  bool note_lost_peer() {
    if (!has_broken_peer_ || failure_) return false;
    for (std::size_t i = 0; i < peers_.size() && !failure_; ++i) {
      const Peer& peer = peers_[i];
      if (peer.status == UCS_OK || peer.said_goodbye) continue;
      fail(ErrorCode::kPeerLost, static_cast<int>(i),
           "the connection to rank " + std::to_string(i) +
               " broke: " + ucs_status_string(peer.status));
    }
    has_broken_peer_ = false;
    return failure_.has_value();
  }

  void fail(ErrorCode code, int peer, std::string what) {
    if (failure_) return;
    failure_ = Error{.code = code,
                     .rank = config_.rank,
                     .peer = peer,
                     .verb = {},
                     .bucket = {},
                     .what = std::move(what)};
  }

  const Config config_;
  UcpContext context_;
  const bool takes_device_memory_;
  UcxMemory memory_;
  UcpWorker worker_;
  int event_fd_ = -1;  ///< The worker's.
  std::vector<std::string> addresses_;
  std::vector<Peer> peers_;  ///< By rank; fixed, since endpoints point into it.
  std::deque<Operation> operations_;
  std::vector<Operation*> unused_;
  ControlArrivals arrivals_;
  AbandonedRuns abandoned_;
  std::optional<Error> failure_;
  bool has_broken_peer_ = false;  ///< Since the last look.
  bool closed_ = false;
};

UcxTransport::UcxTransport(const Config& config) {
  check(config.rank >= 0 && config.rank < config.world_size, "the rank is not of the world");
  check(config.world_size < static_cast<int>(kNoSource), "too many ranks for the tags of messages");
  impl_ = std::make_unique<Impl>(config);
}

UcxTransport::~UcxTransport() { shutdown(false); }

std::string UcxTransport::address() const { return impl_->address(); }
void UcxTransport::connect(std::vector<std::string> addresses) {
  impl_->connect(std::move(addresses));
}
int UcxTransport::rank() const { return impl_->config().rank; }
int UcxTransport::world_size() const { return impl_->config().world_size; }
bool UcxTransport::takes_device_memory() const { return impl_->takes_device_memory(); }
void UcxTransport::expect_messages_in(std::span<std::byte> memory) {
  impl_->expect_messages_in(memory);
}
void UcxTransport::isend(int peer, const Tag& tag, std::span<const std::byte> data,
                         Completion& done) {
  impl_->isend(peer, tag, data, done);
}
void UcxTransport::irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) {
  impl_->irecv(peer, tag, data, done);
}
void UcxTransport::abandon(const Tag& first) { impl_->abandon(first); }
void UcxTransport::send_control(int peer, std::span<const std::byte> bytes) {
  impl_->send_control(peer, bytes);
}
bool UcxTransport::receive_control(ControlFrame& frame) { return impl_->receive_control(frame); }
bool UcxTransport::poll() { return impl_->poll(); }
bool UcxTransport::arm() { return impl_->arm(); }
std::vector<int> UcxTransport::wake_fds() const { return impl_->wake_fds(); }
std::optional<Error> UcxTransport::failure() const { return impl_->failure(); }
void UcxTransport::shutdown(bool orderly) { impl_->shutdown(orderly); }
TrafficCounters UcxTransport::traffic(int peer) const { return impl_->traffic(peer); }

}  // namespace kolo
