#include "tests/support/cuda_emulator/block.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kolo::emulator {
namespace {

// Null except while this thread runs a thread of a kernel.
thread_local Block* running_block = nullptr;

unsigned take(std::vector<unsigned>& from, std::size_t at) {
  std::swap(from[at], from.back());
  const unsigned taken = from.back();
  from.pop_back();
  return taken;
}

}  // namespace

Block::Block(const Launch& launch, const uint3& index, Random& random, FiberPool& pool)
    : launch_(launch),
      random_(random),
      position_{.thread = {}, .block = index, .block_size = launch.block, .grid_size = launch.grid},
      shared_(launch.shared_bytes),
      pool_(pool) {
  const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  threads_.resize(threads);
  unstarted_.resize(threads);
  std::iota(unstarted_.begin(), unstarted_.end(), 0u);
  std::shuffle(unstarted_.begin(), unstarted_.end(), random_);
  all_.size = threads;
  warps_.resize((threads + kLanes - 1) / kLanes);
  for (Warp& warp : warps_) warp.meeting.size = kLanes;
}

Block::~Block() {
  if (!is_done()) return;  // the stacks are still in use
  for (auto& fiber : fibers_) pool_.push_back(std::move(fiber));
}

Block& Block::current() {
  if (running_block == nullptr) throw Fault("this belongs into a kernel, and none is running");
  return *running_block;
}

void Block::step() {
  const std::size_t choices = ready_.size() + unstarted_.size();
  if (choices == 0) report_deadlock();
  const std::size_t choice = random_() % choices;
  running_block = this;
  if (choice < ready_.size()) {
    const unsigned thread = take(ready_, choice);
    become(thread);
    fiber_ = threads_[thread];
    fiber_->resume();
  } else {
    fiber_ = &take_fiber();
    fiber_->start([this] { run_threads(); });
  }
  running_block = nullptr;
  if (thrown_) std::rethrow_exception(thrown_);
  if (is_done()) shared_.check_margins();
}

Fiber& Block::take_fiber() {
  if (idle_.empty()) {
    if (pool_.empty()) pool_.push_back(std::make_unique<Fiber>());
    fibers_.push_back(std::move(pool_.back()));
    pool_.pop_back();
    idle_.push_back(fibers_.back().get());
  }
  Fiber* const fiber = idle_.back();
  idle_.pop_back();
  return *fiber;
}

// Runs on a fiber. Threads that never wait need no other stack.
void Block::run_threads() {
  try {
    while (!unstarted_.empty()) {
      become(take(unstarted_, unstarted_.size() - 1));
      launch_.thread();
      ++ended_;
    }
  } catch (...) {
    thrown_ = std::current_exception();
  }
  idle_.push_back(fiber_);
}

void Block::become(unsigned thread) {
  running_ = thread;
  const dim3& size = launch_.block;
  position_.thread = {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
}

void Block::wait_at(Meeting& meeting, const Place& where) {
  if (meeting.waiting.empty()) {
    meeting.where = where;
  } else if (!(meeting.where == where)) {
    throw Fault(name() + "threads of one block or warp wait for each other at different places: " +
                meeting.where.describe() + " and " + where.describe());
  }
  if (meeting.waiting.size() + 1 == meeting.size) {
    ready_.insert(ready_.end(), meeting.waiting.begin(), meeting.waiting.end());
    meeting.waiting.clear();
    return;
  }
  meeting.waiting.push_back(running_);
  threads_[running_] = fiber_;
  fiber_->suspend();
}

void Block::sync_threads(const Place& where) { wait_at(all_, where); }

std::span<const std::uint64_t, kLanes> Block::exchange(unsigned mask, std::uint64_t value,
                                                       const Place& where) {
  if (mask != ~0u) throw Fault(where.describe() + ": the emulator knows whole warps only");
  Warp& warp = warps_[running_ / kLanes];
  const unsigned lane = running_ % kLanes;
  // Two buffers suffice, because no lane can be two exchanges ahead of another lane.
  auto& values = warp.values[warp.rounds[lane]++ % 2];
  values[lane] = value;
  wait_at(warp.meeting, where);
  return values;
}

std::string Block::name() const {
  const uint3& at = position_.block;
  return "block (" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " +
         std::to_string(at.z) + "): ";
}

void Block::report_deadlock() const {
  std::string text = name() + "no thread can go on; " + std::to_string(ended_) + " of " +
                     std::to_string(threads_.size()) + " have ended";
  const auto add = [&](const Meeting& meeting, const std::string& whom) {
    if (meeting.waiting.empty()) return;
    text += ", " + std::to_string(meeting.waiting.size()) + " wait for " + whom + " at " +
            meeting.where.describe();
  };
  add(all_, "the whole block");
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    add(warps_[i].meeting, "all of warp " + std::to_string(i));
  }
  throw Fault(text);
}

}  // namespace kolo::emulator
