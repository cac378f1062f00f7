#include "comm/coordinator/negotiator.h"

#include <algorithm>
#include <utility>

#include "comm/base/contains.h"

namespace kolo {
namespace {

bool accepts(Negotiator::Rule rule, std::uint64_t least, std::uint64_t greatest) {
  switch (rule) {
    case Negotiator::Rule::kEqualValues:
      return least == greatest;
    case Negotiator::Rule::kEqualButLowestBit:
      return least >> 1 == greatest >> 1;
    case Negotiator::Rule::kAnyValues:
      break;
  }
  return true;
}

}  // namespace

Negotiator::Negotiator(CombiningTree tree) : tree_(std::move(tree)) {}

void Negotiator::propose(const ProposalKey& key, std::uint64_t value, Rule rule) {
  proposals_[key].rule = rule;
  combine(key, value, value);
}

void Negotiator::reject(const std::vector<ProposalKey>& keys, const Error& error) {
  decide({.kind = FrameKind::kReject, .keys = keys, .error = error});
}

void Negotiator::forget(std::uint64_t hash) {
  std::erase_if(proposals_, [&](const auto& entry) { return entry.first.hash == hash; });
}

bool Negotiator::receive(int peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kPropose:
      if (!contains(tree_.children, peer)) return false;
      combine(frame.key, frame.least, frame.greatest);
      return true;
    case FrameKind::kArrive:
      if (!contains(tree_.child_leaders, peer)) return false;
      mark_ready(frame.key);
      return true;
    case FrameKind::kAccept:
    case FrameKind::kReject:
      if (peer != tree_.parent) return false;
      decide(frame);
      return true;
    case FrameKind::kRelease:
      if (peer != tree_.parent) return false;
      release(frame.key);
      return true;
    default:
      return false;
  }
}

void Negotiator::combine(const ProposalKey& key, std::uint64_t least, std::uint64_t greatest) {
  Proposal& proposal = proposals_[key];
  proposal.least = std::min(proposal.least, least);
  proposal.greatest = std::max(proposal.greatest, greatest);
  if (++proposal.proposers <= tree_.children.size()) return;
  if (!is_root()) {
    outgoing_.push_back({tree_.parent,
                         {.kind = FrameKind::kPropose,
                          .key = key,
                          .least = proposal.least,
                          .greatest = proposal.greatest}});
  } else if (accepts(proposal.rule, proposal.least, proposal.greatest)) {
    decide({.kind = FrameKind::kAccept,
            .key = key,
            .least = proposal.least,
            .greatest = proposal.greatest});
  } else {
    conflicts_.push_back(key);
  }
}

void Negotiator::decide(const Frame& frame) {
  for (int child : tree_.children) outgoing_.push_back({child, frame});
  proposals_.erase(frame.key);
  for (const ProposalKey& key : frame.keys) {
    proposals_.erase(key);
    arrivals_.erase(key);
  }
  decisions_.push_back(frame);
}

void Negotiator::mark_ready(const ProposalKey& key) {
  if (++arrivals_[key] <= tree_.child_leaders.size()) return;
  arrivals_.erase(key);
  if (is_root()) {
    release(key);
  } else {
    outgoing_.push_back({tree_.parent, {.kind = FrameKind::kArrive, .key = key}});
  }
}

void Negotiator::release(const ProposalKey& key) {
  for (int child : tree_.child_leaders) {
    outgoing_.push_back({child, {.kind = FrameKind::kRelease, .key = key}});
  }
  released_.push_back(key);
}

}  // namespace kolo
