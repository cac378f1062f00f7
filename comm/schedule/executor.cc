#include "comm/schedule/executor.h"

#include <algorithm>

#include <fmt/format.h>

#include "comm/base/aligned_memory.h"
#include "comm/base/check.h"
#include "comm/collective/reduce_kernels.h"

namespace kolo {
namespace {

static_assert(kMaxBuckets == BucketId{1} << kTagBucketBits);

bool is_kernel(StepKind kind) {
  return kind == StepKind::kReduce || kind == StepKind::kCopy || kind == StepKind::kPack ||
         kind == StepKind::kUnpack;
}

/// A queue of steps; each step enters at most once per iteration, so it never wraps.
class StepQueue {
 public:
  explicit StepQueue(std::size_t capacity) : steps_(capacity) {}
  void clear() { first_ = last_ = 0; }
  bool empty() const { return first_ == last_; }
  void push(StepId step) { steps_[last_++] = step; }
  StepId pop() { return steps_[first_++]; }

 private:
  std::vector<StepId> steps_;
  std::size_t first_ = 0, last_ = 0;
};

}  // namespace

struct Executor::Run {
  Run(Schedule of, Binding at)
      : schedule(std::move(of)),
        binding(std::move(at)),
        predecessors(schedule.steps.size()),
        missing(schedule.steps.size()),
        successors(schedule.steps.size()),
        completions(schedule.steps.size()),
        messages(schedule.steps.size()),
        kernels(schedule.steps.size()),
        element_bytes(size_of(schedule.layout.dtype)),
        scratch(allocate_aligned(schedule.scratch_count * element_bytes)) {
    pending.reserve(schedule.steps.size());
    std::size_t most_sources = 0;
    for (StepId id = 0; id < schedule.steps.size(); ++id) {
      const Step& step = schedule.steps[id];
      predecessors[id] = static_cast<std::uint32_t>(step.after.size());
      for (StepId earlier : step.after) successors[earlier].push_back(id);
      most_sources = std::max(most_sources, step.sources.size());
    }
    source_addresses.reserve(most_sources);
  }

  Schedule schedule;
  Binding binding;
  std::vector<std::uint32_t> predecessors;  // how many, by step
  std::vector<std::uint32_t> missing;       // of them, incomplete in this iteration
  std::vector<std::vector<StepId>> successors;
  std::vector<Completion> completions;  // of messages
  StepQueue messages, kernels;          // ready to start
  std::vector<StepId> pending;          // started messages and flags
  std::size_t remaining = 0;            // incomplete steps
  std::uint64_t iteration = 0;
  bool running = false;
  std::size_t element_bytes;
  AlignedMemory scratch;
  std::vector<const void*> source_addresses;
};

Executor::Executor(Transport& transport) : transport_(transport) {}
Executor::~Executor() = default;

void Executor::add(Schedule schedule, Binding binding) {
  const BucketId bucket = binding.bucket;
  ensure(bucket < kMaxBuckets, "too many buckets for the message tag");
  transport_.commit(binding.arena_offset, schedule.layout.count * size_of(schedule.layout.dtype));
  if (runs_.size() <= bucket) runs_.resize(bucket + 1);
  ensure(!runs_[bucket], "bucket added twice");
  runs_[bucket] = std::make_unique<Run>(std::move(schedule), std::move(binding));
  active_.reserve(runs_.size());
  finished_.reserve(runs_.size());
  taken_.reserve(runs_.size());
}

void Executor::remove(BucketId bucket) {
  ensure(!runs_.at(bucket)->running, "removed a running bucket");
  runs_[bucket].reset();
}

void Executor::start(BucketId bucket, std::uint64_t iteration) {
  Run& run = *runs_.at(bucket);
  ensure(!run.running, "bucket started twice");
  run.running = true;
  run.iteration = iteration;
  run.remaining = run.schedule.steps.size();
  run.missing = run.predecessors;
  run.messages.clear();
  run.kernels.clear();
  for (StepId id = 0; id < run.schedule.steps.size(); ++id) {
    if (run.missing[id] != 0) continue;
    (is_kernel(run.schedule.steps[id].kind) ? run.kernels : run.messages).push(id);
  }
  active_.push_back(&run);
}

bool Executor::poll() {
  bool moved = false;
  for (Run* run : active_) moved |= advance(*run);
  moved |= std::erase_if(active_, [this](Run* run) {
             if (run->remaining > 0) return false;
             run->running = false;
             finished_.push_back(run->binding.bucket);
             return true;
           }) > 0;
  return moved;
}

std::span<const BucketId> Executor::take_finished() {
  taken_.clear();
  std::swap(taken_, finished_);
  return taken_;
}

bool Executor::advance(Run& run) {
  bool moved = complete_pending(run);
  while (!run.messages.empty()) {
    issue(run, run.messages.pop());
    moved = true;
  }
  if (!run.kernels.empty()) {
    const StepId id = run.kernels.pop();
    compute(run, run.schedule.steps[id]);
    complete(run, id);
    moved = true;
  }
  return moved;
}

bool Executor::complete_pending(Run& run) {
  bool moved = false;
  for (std::size_t i = 0; i < run.pending.size();) {
    const StepId id = run.pending[i];
    const Step& step = run.schedule.steps[id];
    const bool done =
        step.kind == StepKind::kAwait
            ? transport_.signalled(step.peer, run.binding.first_flag + step.ordinal) > run.iteration
            : run.completions[id].state == Completion::State::kDone;
    if (!done) {
      ++i;
      continue;
    }
    run.pending[i] = run.pending.back();
    run.pending.pop_back();
    complete(run, id);
    moved = true;
  }
  return moved;
}

void Executor::complete(Run& run, StepId step) {
  --run.remaining;
  for (StepId later : run.successors[step]) {
    if (--run.missing[later] > 0) continue;
    (is_kernel(run.schedule.steps[later].kind) ? run.kernels : run.messages).push(later);
  }
}

void Executor::issue(Run& run, StepId id) {
  const Step& step = run.schedule.steps[id];
  const auto tag_from = [&](int source) {
    return Tag{.epoch = run.binding.epoch,
               .source = static_cast<std::uint32_t>(source),
               .bucket = run.binding.bucket,
               .iteration = static_cast<std::uint32_t>(run.iteration),
               .ordinal = step.ordinal};
  };
  switch (step.kind) {
    case StepKind::kSend: {
      const Range& source = step.sources[0];
      transport_.isend(step.peer, tag_from(transport_.rank()),
                       {address(run, source), source.count * run.element_bytes},
                       run.completions[id]);
      run.pending.push_back(id);
      break;
    }
    case StepKind::kRecv:
      transport_.irecv(step.peer, tag_from(step.peer),
                       {address(run, step.target), step.target.count * run.element_bytes},
                       run.completions[id]);
      run.pending.push_back(id);
      break;
    case StepKind::kSignal:
      transport_.signal(step.peer, run.binding.first_flag + step.ordinal, run.iteration + 1);
      complete(run, id);
      break;
    case StepKind::kAwait:
      run.pending.push_back(id);
      break;
    case StepKind::kReduce:
    case StepKind::kCopy:
    case StepKind::kPack:
    case StepKind::kUnpack:
      break;
  }
}

void Executor::compute(Run& run, const Step& step) {
  const BucketLayout& layout = run.schedule.layout;
  const Range& source = step.sources[0];
  switch (step.kind) {
    case StepKind::kReduce:
      run.source_addresses.clear();
      for (const Range& range : step.sources) run.source_addresses.push_back(address(run, range));
      reduce(layout.dtype, layout.op, address(run, step.target), run.source_addresses,
             step.target.count, step.finishes ? run.binding.scale : 1.0);
      break;
    case StepKind::kCopy:
      std::copy_n(address(run, source), source.count * run.element_bytes,
                  address(run, step.target));
      break;
    case StepKind::kPack:
      run.binding.packer->pack(source.offset, source.count, address(run, step.target));
      break;
    case StepKind::kUnpack:
      run.binding.packer->unpack(step.target.offset, step.target.count, address(run, source));
      break;
    default:
      break;
  }
}

std::byte* Executor::address(Run& run, const Range& range) {
  const std::size_t offset = range.offset * run.element_bytes;
  if (range.region == Region::kScratch) return run.scratch.get() + offset;
  return transport_.memory(range.rank).data() + run.binding.arena_offset + offset;
}

std::string Executor::describe_wait() const {
  if (active_.empty()) return "nothing";
  const Run& run = *active_.front();
  std::string text = fmt::format("bucket '{}' iteration {}:", run.binding.name, run.iteration);
  for (StepId id : run.pending) {
    const Step& step = run.schedule.steps[id];
    text += fmt::format(" {} {} {} rank {};",
                        step.kind == StepKind::kSend   ? "send"
                        : step.kind == StepKind::kRecv ? "recv"
                                                       : "await",
                        step.ordinal, step.kind == StepKind::kSend ? "to" : "from", step.peer);
  }
  return text;
}

void Executor::append_awaited_peers(std::vector<int>& peers) const {
  for (const Run* run : active_) {
    for (StepId id : run->pending) peers.push_back(run->schedule.steps[id].peer);
  }
}

void Executor::cancel() {
  for (Run* run : active_) {
    run->running = false;
    run->pending.clear();
  }
  active_.clear();
  finished_.clear();
}

}  // namespace kolo
