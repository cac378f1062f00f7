#include "benchmarks/sim/simulator_schedules.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "comm/base/check.h"

namespace kolo {
namespace {

/// Returns the bytes and entries of the sources of a step.
PayloadUse use_of_sources(const Schedule& schedule, const Step& step) {
  PayloadUse all;
  for (const Range& source : step.sources) {
    const PayloadUse use = usual_use(schedule, source);
    all.bytes += use.bytes;
    all.entries += use.entries;
  }
  return all;
}

/// Returns the bytes that a codec streams, and the entries that it updates one by one.
PayloadUse codec_use(const Schedule& schedule, const Step& step) {
  const PayloadUse sources = use_of_sources(schedule, step);
  const PayloadUse target = usual_use(schedule, step.target);
  switch (step.verb) {
    case CodecVerb::kFold:
    case CodecVerb::kEncode:
      return {.bytes = 3 * sources.bytes};  // contribution, residual and their sum
    case CodecVerb::kRefine:
      return {.bytes = 3 * usual_use(schedule, step.sources[0]).bytes};  // 2 products of residuals
    case CodecVerb::kMerge:
      return {.bytes = 0, .entries = sources.entries};
    case CodecVerb::kDecode:
      return {.bytes = target.bytes, .entries = sources.entries};
    case CodecVerb::kInspect:
    case CodecVerb::kSelect:  // on a device, whose kernels are not the processor's time
    case CodecVerb::kScatter:
      return {};
  }
  return {};
}

/// Returns the bytes that a rank sends or receives in a collective of the device's library,
/// whichever is more; for an all-reduce, the bytes of the bucket.
std::size_t native_bytes(const Schedule& schedule, const Step& step, const ProcessGrid& grid) {
  const bool is_in_node = step.group == NativeGroup::kNode;
  const std::vector<int>& near = grid.ranks_of_node(grid.node(schedule.rank));
  const std::size_t size = is_in_node ? near.size() : static_cast<std::size_t>(grid.world_size());
  const auto own =
      static_cast<std::size_t>(is_in_node ? grid.local_rank(schedule.rank) : schedule.rank);
  const auto elements = [](const std::vector<Range>& ranges) {
    std::size_t sum = 0;
    for (const Range& range : ranges) sum += range.count;
    return sum;
  };
  const auto of_others = [&](const std::vector<Range>& ranges) {
    std::size_t sum = elements(ranges);
    for (std::size_t i = own; i < ranges.size(); i += size) sum -= ranges[i].count;
    return sum;
  };
  const auto moved = [&]() -> std::size_t {
    switch (step.native) {
      case NativeOp::kAllReduce:
        return step.target.count;
      case NativeOp::kReduceScatter:
        return step.sources[0].count - step.target.count;
      case NativeOp::kAllGather:
        return step.target.count - step.sources[0].count;
      case NativeOp::kReduceParts:
        return elements(step.sources) - elements(step.mirrors);
      case NativeOp::kGatherParts:
        return elements(step.mirrors) - elements(step.sources);
      case NativeOp::kExchange:
        break;
    }
    return std::max(of_others(step.sources), of_others(step.mirrors));
  };
  return moved() * size_of(schedule.layout.dtype);
}

/// Returns the bytes that a kernel reads and writes, or that another step moves.
PayloadUse use_of(const Schedule& schedule, const Step& step, const ProcessGrid& grid) {
  const auto bytes_of = [&](const Range& range) { return usual_use(schedule, range).bytes; };
  switch (step.kind) {
    case StepKind::kSend:
      return {.bytes = bytes_of(step.sources[0])};
    case StepKind::kRecv:
      return {.bytes = bytes_of(step.target)};
    case StepKind::kReduce:
      return {.bytes = (step.sources.size() + 1 + step.mirrors.size()) * bytes_of(step.target)};
    case StepKind::kCopy:
    case StepKind::kPack:
    case StepKind::kUnpack:
      return {.bytes = 2 * bytes_of(step.target)};
    case StepKind::kExchange:
      return {.bytes = 4 * bytes_of(step.target)};
    case StepKind::kNative:
      return {.bytes = native_bytes(schedule, step, grid)};
    case StepKind::kCodec:
      return codec_use(schedule, step);
    case StepKind::kSignal:
    case StepKind::kAwait:
    case StepKind::kExpose:
      return {};
  }
  return {};
}

/// Returns the elements read from a peer's staging buffers, which the peer writes in every
/// iteration. (A bucket in place is written by the caller, much earlier.)
std::size_t shared_elements_of(const Step& step, int rank) {
  std::size_t total = 0;
  for (const Range& source : step.sources) {
    const bool is_slot =
        source.region == Region::kStaging || source.region == Region::kExposedInput;
    if (source.rank != rank && is_slot) total += source.count;
  }
  return total;
}

Worker worker_of(const Step& step, MemoryKind memory) {
  const bool on_device = memory == MemoryKind::kDevice;
  switch (step.kind) {
    case StepKind::kSend:
    case StepKind::kRecv:
    case StepKind::kSignal:
    case StepKind::kAwait:
    case StepKind::kExpose:
      return Worker::kMessages;
    case StepKind::kNative:
      return Worker::kCollectives;
    case StepKind::kCodec:
      return on_device && works_on_elements(step.verb) ? Worker::kDeviceKernels : Worker::kKernels;
    case StepKind::kExchange:
      return Worker::kKernels;
    case StepKind::kPack:
      return on_device ? Worker::kPacks : Worker::kKernels;
    case StepKind::kCopy:
      if (on_device && step.target.region == Region::kStaging) return Worker::kDown;
      if (on_device && step.sources[0].region == Region::kStaging) return Worker::kUp;
      [[fallthrough]];
    case StepKind::kReduce:
    case StepKind::kUnpack:
      return on_device ? Worker::kDeviceKernels : Worker::kKernels;
  }
  return Worker::kMessages;
}

bool takes(StepKind kind) { return kind == StepKind::kRecv || kind == StepKind::kAwait; }
bool gives(StepKind kind) { return kind == StepKind::kSend || kind == StepKind::kSignal; }
bool is_message(StepKind kind) { return kind == StepKind::kSend || kind == StepKind::kRecv; }

int moved_rank(const ProcessGrid& grid, NodeSymmetry symmetry, int rank, int by) {
  const int node = moved(symmetry, grid.node(rank), by, grid.num_nodes());
  return grid.ranks_of_node(node)[static_cast<std::size_t>(grid.local_rank(rank))];
}

/// One end of a message or flag. Both ends have equal keys.
struct End {
  std::tuple<bool, int, int, std::uint32_t> key;  // message?, source, destination, ordinal
  std::size_t lines;
  StepId step;

  friend bool operator<(const End& a, const End& b) { return a.key < b.key; }
};

}  // namespace

int moved(NodeSymmetry symmetry, int node, int by, int num_nodes) {
  switch (symmetry) {
    case NodeSymmetry::kNone:
      return node;
    case NodeSymmetry::kRotation:
      return (node + by) % num_nodes;
    case NodeSymmetry::kExchange:
      return node ^ by;
  }
  return node;
}

SimulatorSchedules::SimulatorSchedules(const ProcessGrid& grid, NodeSymmetry symmetry,
                                       const Compile& compile)
    : grid_(grid), symmetry_(symmetry) {
  const bool is_alike = symmetry != NodeSymmetry::kNone;
  check(!is_alike || grid.is_even(), "nodes of different size are not alike");
  const auto nodes = static_cast<unsigned>(grid.num_nodes());
  check(symmetry != NodeSymmetry::kExchange || std::has_single_bit(nodes),
        "an exchange symmetry needs a power of two nodes");
  const int ranks = is_alike ? grid.local_size(grid.leader(0)) : grid.world_size();
  for (int i = 0; i < ranks; ++i) {
    add(compile(is_alike ? grid.ranks_of_node(0)[static_cast<std::size_t>(i)] : i));
  }
  pair_up();
  if (is_alike) steps_ *= nodes;
}

std::size_t SimulatorSchedules::line_of(int rank) const {
  return static_cast<std::size_t>(symmetry_ == NodeSymmetry::kNone ? rank : grid_.local_rank(rank));
}

int SimulatorSchedules::peer(int rank, const Step& step) const {
  if (symmetry_ == NodeSymmetry::kNone) return step.peer;
  return moved_rank(grid_, symmetry_, step.peer, grid_.node(rank));
}

void SimulatorSchedules::add(const Schedule& schedule) {
  layout_ = schedule.layout;
  is_eager_ = schedule.eager;
  const std::size_t element_bytes = size_of(schedule.layout.dtype);
  const std::size_t count = schedule.steps.size();
  Lines lines;
  lines.steps.reserve(count);
  lines.first.assign(count + 1, 0);
  for (StepId id = 0; id < count; ++id) {
    const kolo::Step& step = schedule.steps[id];
    const PayloadUse use = use_of(schedule, step, grid_);
    lines.steps.push_back(
        {.kind = step.kind,
         .native = step.native,
         .group = step.group,
         .worker = worker_of(step, layout_.memory),
         .peer = step.peer,
         .partner = kNobody,
         .ordinal = step.ordinal,
         .lag = step.lag,
         .waits = narrow<std::uint32_t>(step.after.size()),
         .entries = narrow<std::uint32_t>(use.entries),
         .bytes = use.bytes,
         .shared_bytes = shared_elements_of(step, schedule.rank) * element_bytes});
    if (lines.steps.back().takes()) ++lines.steps.back().waits;
    for (StepId earlier : step.after) ++lines.first[earlier + 1];
  }
  for (std::size_t i = 0; i < count; ++i) lines.first[i + 1] += lines.first[i];
  lines.followers.resize(lines.first[count]);
  std::vector<std::uint32_t> next(lines.first.begin(), lines.first.end());
  for (StepId id = 0; id < count; ++id) {
    for (StepId earlier : schedule.steps[id].after) lines.followers[next[earlier]++] = id;
  }
  steps_ += count;
  lines_.push_back(std::move(lines));
}

// Pairs the ends of messages. Without a symmetry, the ranks at both ends identify a message. With a
// symmetry, only node 0's ends are stored: for each message that node 0 receives, source and
// destination are moved so that the source is on node 0.
void SimulatorSchedules::pair_up() {
  std::vector<End> given, taken;
  const int nodes = grid_.num_nodes();
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const int rank =
        symmetry_ == NodeSymmetry::kNone ? static_cast<int>(i) : grid_.ranks_of_node(0)[i];
    for (StepId id = 0; id < lines_[i].steps.size(); ++id) {
      const Step& step = lines_[i].steps[id];
      const bool message = is_message(step.kind);
      if (gives(step.kind)) {
        given.push_back({{message, rank, step.peer, step.ordinal}, i, id});
      } else if (takes(step.kind)) {
        const int node = grid_.node(step.peer);
        const int back = symmetry_ == NodeSymmetry::kRotation ? (nodes - node) % nodes : node;
        const int giver = moved_rank(grid_, symmetry_, step.peer, back);
        const int taker = moved_rank(grid_, symmetry_, rank, back);
        taken.push_back({{message, giver, taker, step.ordinal}, i, id});
      }
    }
  }
  std::sort(given.begin(), given.end());
  std::sort(taken.begin(), taken.end());
  std::size_t pairs = 0;
  for (auto give = given.begin(), take = taken.begin();
       give != given.end() && take != taken.end();) {
    if (*give < *take) {
      ++give;
    } else if (*take < *give) {
      ++take;
    } else {
      Step& from = lines_[give->lines].steps[give->step];
      const Step& to = lines_[take->lines].steps[take->step];
      check(from.bytes == to.bytes,
            "a message differs in length at its ends; are the nodes alike?");
      if (to.takes()) from.partner = take->step;
      ++give, ++take, ++pairs;
    }
  }
  check(symmetry_ == NodeSymmetry::kNone || (pairs == given.size() && pairs == taken.size()),
        "a message has only one end: the nodes are not alike");
}

namespace {

bool is_moved(const Schedule& original, const Schedule& copy, const ProcessGrid& grid,
              NodeSymmetry symmetry, int by) {
  const auto same_use = [&](const Step& a, const Step& b) {
    const PayloadUse one = use_of(original, a, grid), other = use_of(copy, b, grid);
    return one.bytes == other.bytes && one.entries == other.entries;
  };
  const auto same = [&](const Step& a, const Step& b) {
    const int peer = a.peer < 0 ? a.peer : moved_rank(grid, symmetry, a.peer, by);
    return a.kind == b.kind && peer == b.peer && a.ordinal == b.ordinal && a.lag == b.lag &&
           a.after == b.after && a.native == b.native && a.group == b.group && same_use(a, b);
  };
  return std::equal(original.steps.begin(), original.steps.end(), copy.steps.begin(),
                    copy.steps.end(), same);
}

}  // namespace

NodeSymmetry find_symmetry(const ProcessGrid& grid, const SimulatorSchedules::Compile& compile,
                           std::span<const int> nodes) {
  if (!grid.is_even()) return NodeSymmetry::kNone;
  const auto holds = [&](NodeSymmetry symmetry) {
    const std::vector<int>& first = grid.ranks_of_node(0);
    for (int rank : {first.front(), first.back()}) {
      const Schedule original = compile(rank);
      for (int node : nodes) {
        const int other = moved_rank(grid, symmetry, rank, node);
        if (!is_moved(original, compile(other), grid, symmetry, node)) return false;
      }
    }
    return true;
  };
  if (holds(NodeSymmetry::kRotation)) return NodeSymmetry::kRotation;
  const auto count = static_cast<unsigned>(grid.num_nodes());
  if (std::has_single_bit(count) && holds(NodeSymmetry::kExchange)) return NodeSymmetry::kExchange;
  return NodeSymmetry::kNone;
}

}  // namespace kolo
