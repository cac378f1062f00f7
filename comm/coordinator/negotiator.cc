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

void Negotiator::propose(const Topic& topic, std::uint64_t value, Rule rule) {
  proposals_[topic].rule = rule;
  combine(topic, value, value);
}

void Negotiator::reject(const std::vector<Topic>& topics, const Error& error) {
  decide({.kind = FrameKind::kReject, .topics = topics, .error = error});
}

bool Negotiator::receive(int peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kPropose:
      if (!contains(tree_.children, peer)) return false;
      combine(frame.topic, frame.least, frame.greatest);
      return true;
    case FrameKind::kArrive:
      if (!contains(tree_.child_leaders, peer)) return false;
      arrive(frame.topic);
      return true;
    case FrameKind::kAccept:
    case FrameKind::kReject:
      if (peer != tree_.parent) return false;
      decide(frame);
      return true;
    case FrameKind::kRelease:
      if (peer != tree_.parent) return false;
      release(frame.topic);
      return true;
    default:
      return false;
  }
}

void Negotiator::combine(const Topic& topic, std::uint64_t least, std::uint64_t greatest) {
  Proposal& proposal = proposals_[topic];
  proposal.least = std::min(proposal.least, least);
  proposal.greatest = std::max(proposal.greatest, greatest);
  if (++proposal.proposers <= tree_.children.size()) return;
  if (!is_root()) {
    outgoing_.push_back({tree_.parent,
                         {.kind = FrameKind::kPropose,
                          .topic = topic,
                          .least = proposal.least,
                          .greatest = proposal.greatest}});
  } else if (accepts(proposal.rule, proposal.least, proposal.greatest)) {
    decide({.kind = FrameKind::kAccept,
            .topic = topic,
            .least = proposal.least,
            .greatest = proposal.greatest});
  } else {
    conflicts_.push_back(topic);
  }
}

void Negotiator::decide(const Frame& frame) {
  for (int child : tree_.children) outgoing_.push_back({child, frame});
  proposals_.erase(frame.topic);
  for (const Topic& topic : frame.topics) {
    proposals_.erase(topic);
    arrivals_.erase(topic);
  }
  decisions_.push_back(frame);
}

void Negotiator::arrive(const Topic& topic) {
  if (++arrivals_[topic] <= tree_.child_leaders.size()) return;
  arrivals_.erase(topic);
  if (is_root()) {
    release(topic);
  } else {
    outgoing_.push_back({tree_.parent, {.kind = FrameKind::kArrive, .topic = topic}});
  }
}

void Negotiator::release(const Topic& topic) {
  for (int child : tree_.child_leaders) {
    outgoing_.push_back({child, {.kind = FrameKind::kRelease, .topic = topic}});
  }
  released_.push_back(topic);
}

}  // namespace kolo
