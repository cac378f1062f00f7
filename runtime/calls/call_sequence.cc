#include "runtime/calls/call_sequence.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace kolo {

void CallSequences::submit(std::shared_ptr<CallSequence> call) {
  under_way_.push_back({.call = std::move(call), .stage = {}});
  begin_stage(under_way_.back());
}

bool CallSequences::poll() {
  bool moved = false;
  for (UnderWay& each : under_way_) {
    if (!is_due(each)) continue;
    go_on(each);
    moved = true;
  }
  std::erase_if(under_way_, [](const UnderWay& each) { return each.call == nullptr; });
  return moved;
}

void CallSequences::fail_all(const Error& error) noexcept {
  for (const UnderWay& each : under_way_) {
    if (each.call) each.call->fail(error);
  }
  under_way_.clear();
}

bool CallSequences::awaits_device() const {
  return std::ranges::any_of(under_way_,
                             [](const UnderWay& each) { return each.call && each.stage.empty(); });
}

/// A sequence that failed with its first operation may be over already.
bool CallSequences::is_due(const UnderWay& each) {
  if (!each.call) return false;
  if (each.stage.empty()) return each.call->is_settled();
  return std::ranges::all_of(each.stage,
                             [](const auto& operation) { return operation->ticket->done(); });
}

/// Errors of operations, which all ranks have, are those of the call.
void CallSequences::go_on(UnderWay& each) {
  if (each.stage.empty()) return std::exchange(each.call, nullptr)->complete();
  try {
    for (const auto& operation : each.stage) {
      operation->ticket->wait_at_most(std::chrono::milliseconds(0), nullptr);
    }
  } catch (const KoloError& e) {
    return std::exchange(each.call, nullptr)->fail(e.error());
  }
  begin_stage(each);
}

void CallSequences::begin_stage(UnderWay& each) {
  each.stage = each.call->next();
  if (each.stage.empty()) {
    if (each.call->is_settled()) go_on(each);
    return;
  }
  // A thread that waits for the call waits for one operation, not for each of them.
  each.stage.front()->ticket = std::make_shared<TicketState>(each.call);
  for (const auto& operation : each.stage) operations_.submit(operation);
}

}  // namespace kolo
