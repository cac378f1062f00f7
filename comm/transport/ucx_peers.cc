#include "comm/transport/ucx_peers.h"

#include <chrono>
#include <utility>

#include "comm/base/check.h"

namespace kolo {

UcxPeers::UcxPeers(const UcxLibrary& ucx, ucp_worker_h worker, int world_size)
    : ucx_(ucx), worker_(worker), peers_(static_cast<std::size_t>(world_size)) {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    peers_[rank].owner = this;
    peers_[rank].rank = static_cast<int>(rank);
  }
}

void UcxPeers::set_addresses(std::vector<std::string> addresses) {
  check(addresses.size() == peers_.size(), "UCX needs one address per rank");
  addresses_ = std::move(addresses);
}

const UcxPeers::Peer& UcxPeers::operator[](int rank) const {
  check(rank >= 0 && static_cast<std::size_t>(rank) < peers_.size(), "no such rank");
  return peers_[static_cast<std::size_t>(rank)];
}

ucp_ep_h UcxPeers::endpoint(Peer& peer, UcxChannel lane) {
  open(peer, UcxChannel::kControl);
  open(peer, lane);
  return peer.endpoints[static_cast<std::size_t>(lane)];
}

void UcxPeers::open(Peer& peer, UcxChannel lane) {
  ucp_ep_h& endpoint = peer.endpoints[static_cast<std::size_t>(lane)];
  if (endpoint != nullptr || peer.status != UCS_OK) return;
  const auto index = static_cast<std::size_t>(peer.rank);
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
  const ucs_status_t status = ucx_.ucp_ep_create(worker_, &params, &endpoint);
  if (status != UCS_OK) note_status(peer, status);
}

void UcxPeers::note_status(Peer& peer, ucs_status_t status) {
  if (peer.status == UCS_OK) peer.status = status;
  broken_.push_back(&peer);
}

const UcxPeers::Peer* UcxPeers::take_broken() {
  const Peer* first = nullptr;
  for (const Peer* peer : broken_) {
    if (first == nullptr && !peer->said_goodbye) first = peer;
  }
  broken_.clear();
  return first;
}

void UcxPeers::flush(TimePoint deadline) {
  std::vector<ucs_status_ptr_t> flushing;
  for_each_open([&](Peer& peer, UcxChannel lane) {
    const ucp_request_param_t param{};
    flushing.push_back(
        ucx_.ucp_ep_flush_nbx(peer.endpoints[static_cast<std::size_t>(lane)], &param));
  });
  wait_for(flushing, deadline);
}

void UcxPeers::close(TimePoint deadline) {
  std::vector<ucs_status_ptr_t> closing;
  for (Peer& peer : peers_) {
    for (ucp_ep_h& endpoint : peer.endpoints) {
      if (endpoint == nullptr) continue;
      ucp_request_param_t param{};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
      closing.push_back(ucx_.ucp_ep_close_nbx(endpoint, &param));
      endpoint = nullptr;
    }
  }
  wait_for(closing, deadline);
}

void UcxPeers::wait_for(const std::vector<ucs_status_ptr_t>& requests, TimePoint deadline) {
  for (const ucs_status_ptr_t request : requests) {
    if (!UCS_PTR_IS_PTR(request)) continue;
    while (ucx_.ucp_request_check_status(request) == UCS_INPROGRESS &&
           TimePoint(std::chrono::steady_clock::now()) < deadline) {
      ucx_.ucp_worker_progress(worker_);
    }
    ucx_.ucp_request_free(request);
  }
}

}  // namespace kolo
