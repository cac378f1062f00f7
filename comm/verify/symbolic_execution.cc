#include "comm/verify/symbolic_execution.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "comm/schedule/exposed_buffer.h"
#include "comm/verify/contents.h"
#include "comm/verify/step_rules.h"

namespace kolo {
namespace {

/// Whether the lowest rank of each source is higher than the lowest rank of the source before it.
bool ascend(const std::vector<SymbolicRuns>& sources) {
  const auto lowest = [](const SymbolicRuns& source) {
    const auto& counts = source.front().value.counts;
    return std::ranges::find_if(counts, [](auto count) { return count > 0; }) - counts.begin();
  };
  return std::ranges::adjacent_find(sources, [&](const auto& a, const auto& b) {
           return lowest(a) >= lowest(b);
         }) == sources.end();
}

SymbolicRuns joined(std::span<const SymbolicRuns> parts) {
  SymbolicRuns all;
  for (const SymbolicRuns& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// Whether `sums` has every rank's contribution to these elements exactly once.
bool are_complete(SymbolicRuns sums, SymbolicRuns elements) {
  for (SymbolicRun& run : elements) {
    std::ranges::fill(run.value.counts, 1);
    run.value.folded = true;
    run.value.form = 0;
  }
  for (SymbolicRun& run : sums) run.value.form = 0;
  return is_same(sums, elements);
}

bool is_codec(const Step& step, CodecVerb verb) {
  return step.kind == StepKind::kCodec && step.verb == verb;
}

/// Computes the output of a codec step from `sources`. Returns the error, if any, as the end of a
/// sentence. Contributions must be merged in rank order, and refined by complete sums. Folding and
/// encoding add residuals.
std::optional<std::string> play_codec_step(const Step& step,
                                           const std::vector<SymbolicRuns>& sources,
                                           SymbolicRuns& result) {
  for (const SymbolicRuns& source : sources) {
    for (const SymbolicRun& run : source) {
      if (!run.value.written())
        return "uses data that no step wrote, or adds up different elements";
    }
  }
  switch (step.verb) {
    case CodecVerb::kRefine:
      if (!are_complete(joined(std::span(sources).subspan(1)), sources[0])) {
        return "refines a contribution by sums that are not complete";
      }
      [[fallthrough]];
    case CodecVerb::kEncode:
    case CodecVerb::kFold:
      result = sources[0];
      for (SymbolicRun& run : result) run.value.folded = true;
      return std::nullopt;
    case CodecVerb::kSelect:
    case CodecVerb::kScatter:
      result = sources[0];
      return std::nullopt;
    case CodecVerb::kInspect:
      return std::nullopt;
    case CodecVerb::kMerge:
      if (!ascend(sources)) return "sums contributions in another order than that of ranks";
      result = sources[0];
      for (std::size_t i = 1; i < sources.size(); ++i) result = combine(result, sources[i]);
      return std::nullopt;
    case CodecVerb::kDecode:
      result = joined(sources);
      return std::nullopt;
  }
  return std::nullopt;
}

class Play {
 public:
  using Node = AllSteps::Node;

  Play(const AllSteps& steps, const CollectiveSpec& spec)
      : steps_(steps), schedules_(steps.schedules()), spec_(spec) {
    for (Node node = 0; node < steps_.size(); ++node) {
      has_codec_ = has_codec_ || steps_[node].kind == StepKind::kCodec;
      if (is_codec(steps_[node], CodecVerb::kFold)) folds_.push_back(node);
    }
  }

  std::optional<std::string> play(std::span<const Node> order, const Meetings& meetings) {
    for (const CollectiveSpec::Part& part : spec_.parts()) {
      for (int rank : part.contributors) contribute(rank, in_bucket(part.extent));
    }
    std::map<std::tuple<std::size_t, int, std::uint32_t>, SymbolicRuns> messages;
    std::map<Node, std::vector<SymbolicRuns>> met;
    for (Node node : order) {
      if (node >= steps_.size()) {
        play_meeting(meetings.at(node), met);
        average(meetings.at(node), met);
        continue;
      }
      const Step& line = steps_[node];
      SymbolicRuns result;
      switch (line.kind) {
        case StepKind::kSend:
          messages[{steps_.rank_of(node), line.peer, line.ordinal}] = read(line.sources[0]);
          break;
        case StepKind::kRecv:
          result = messages[{static_cast<std::size_t>(line.peer),
                             static_cast<int>(steps_.rank_of(node)), line.ordinal}];
          break;
        case StepKind::kCopy:
        case StepKind::kPack:
        case StepKind::kUnpack:
          result = read(line.sources[0]);
          break;
        case StepKind::kExchange:
          if (auto wrong = write(node, read(line.sources[0]), line.mirrors[0])) return wrong;
          if (auto wrong = write(node, read(line.sources[1]), line.target)) return wrong;
          continue;
        case StepKind::kReduce:
          result = sum_of_sources(line);
          break;
        case StepKind::kNative:
          if (auto wrong = write_native(node, met[node])) return wrong;
          continue;
        case StepKind::kCodec:
          if (auto wrong = play_codec(node, result)) return steps_.text(node) + " " + *wrong;
          break;
        case StepKind::kSignal:
        case StepKind::kAwait:
        case StepKind::kExpose:
          break;
      }
      if (ExposedBuffer::is_exposed(line.target)) {
        if (auto wrong = play_exposed(node, std::move(result))) return wrong;
        continue;
      }
      for (const auto& [range, access] : accesses(line, schedules_[0].layout)) {
        if (access != Access::kWrite) continue;
        if (auto wrong = write(node, result, range)) return wrong;
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> check_result() {
    const auto result = [&](int rank, const Extent& extent) {
      return read({rank, result_region(), extent.offset, extent.count});
    };
    for (const CollectiveSpec::Part& part : spec_.parts()) {
      const Extent extent = in_bucket(part.extent);
      const int first = part.receivers.front();
      for (int rank : part.receivers) {
        if (auto wrong = check_part(rank, part)) return wrong;
        if (!is_same(result(rank, extent), result(first, extent))) {
          return fmt::format("ranks {} and {} sum or round in different orders", first, rank);
        }
      }
    }
    for (const Schedule& each : schedules_) {
      const std::vector<SymbolicRuns>& inspected = inspected_[each.rank];
      if (has_codec_ && (inspected.size() != 1 ||
                         !is_same(inspected[0], result(each.rank, {0, each.layout.count})))) {
        return fmt::format("rank {} does not inspect its final results once", each.rank);
      }
    }
    return std::nullopt;
  }

 private:
  Extent in_bucket(Extent extent) const {
    extent.count = std::min(extent.count, schedules_[0].layout.count - extent.offset);
    return extent;
  }

  void contribute(int rank, const Extent& extent) {
    if (extent.count == 0) return;
    const SymbolicRun run{
        .count = extent.count,
        .value = contribution_of(static_cast<std::size_t>(rank), schedules_.size()),
        .element = extent.offset};
    contents_[{rank, input_region()}].write(extent.offset, {run});
    // Contributions are in the memory of results, so a part that stays in place needs no step.
    if (schedules_[0].layout.replaces_inputs) {
      contents_[{rank, result_region()}].write(extent.offset, {run});
    }
  }

  std::optional<std::string> check_part(int rank, const CollectiveSpec::Part& part) {
    SymbolicValue expected{.counts = std::vector<std::uint16_t>(schedules_.size())};
    for (int each : part.contributors) expected.counts[static_cast<std::size_t>(each)] = 1;
    expected.divisor = part.sums() ? schedules_.size() : 1;
    expected.folded = has_codec_;
    const Extent extent = in_bucket(part.extent);
    std::size_t offset = extent.offset;
    for (const SymbolicRun& run : read({rank, result_region(), offset, extent.count})) {
      if (run.element != offset) {
        return fmt::format("rank {} ends with element {} in the place of element {}", rank,
                           run.element, offset);
      }
      expected.form = run.value.form;  // Only receivers' forms are compared.
      if (run.value != expected) {
        return fmt::format("rank {} ends with {} (divided by {}) in element {}, not with {} ({})",
                           rank, describe(run.value), run.value.divisor, offset, describe(expected),
                           expected.divisor);
      }
      offset += run.count;
    }
    return std::nullopt;
  }

  /// Returns the number by which a kernel divides an average. Native steps divide in `average`.
  std::size_t divisor(Node node) const {
    const bool divides = steps_[node].finishes && steps_[node].kind != StepKind::kNative;
    return divides ? schedules_.size() / schedules_[steps_.rank_of(node)].averaged_ranks : 1;
  }

  /// Divides the output of native steps by the number of ranks that meet.
  void average(const std::vector<Node>& steps,
               std::map<Node, std::vector<SymbolicRuns>>& results) const {
    for (Node node : steps) {
      if (!steps_[node].finishes) continue;
      for (SymbolicRuns& part : results[node]) {
        for (SymbolicRun& run : part) run.value.round(steps.size());
      }
    }
  }

  /// Writes the result of a step to `target`. Returns the error, if any.
  std::optional<std::string> write(Node node, SymbolicRuns result, const Range& target) {
    for (SymbolicRun& run : result) {
      if (!run.value.written())
        return steps_.text(node) + " uses data that no step wrote, or adds up different elements";
      const std::size_t by = divisor(node);
      if (by > 1 || steps_[node].kind == StepKind::kReduce) run.value.round(by);
    }
    contents_[{target.rank, target.region}].write(target.offset, result);
    return std::nullopt;
  }

  /// Plays a step whose target is exposed. A contribution is written to the slot. kExpose opens an
  /// exposure and makes the slot's content undefined. A write to an exposed result ends the
  /// exposure: it writes to the slot and makes the tensors' content undefined (either may be used).
  std::optional<std::string> play_exposed(Node node, SymbolicRuns result) {
    const Range& range = steps_[node].target;
    const Range elements = ExposedBuffer::elements(range, schedules_[0].layout.dtype);
    if (range.region == Region::kExposedInput) return write(node, std::move(result), elements);
    const bool is_exposure = steps_[node].kind == StepKind::kExpose;
    const Range former =
        std::exchange(offers_[{range.rank, range.slot}], is_exposure ? range : Range{});
    if (!is_exposure && former != range) return steps_.text(node) + " writes what is not exposed";
    const SymbolicRuns unknown{{.count = range.count, .element = range.offset}};
    if (is_exposure) {
      contents_[{range.rank, Region::kStaging}].write(elements.offset, unknown);
      return std::nullopt;
    }
    contents_[{range.rank, Region::kUser}].write(range.offset, unknown);
    return write(node, std::move(result), elements);
  }

  /// Writes the results of a native step to its target or its mirrors.
  std::optional<std::string> write_native(Node node, std::vector<SymbolicRuns>& results) {
    const Step& line = steps_[node];
    const std::vector<Range> outputs =
        has_parts(line.native) ? line.mirrors : std::vector<Range>{line.target};
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (auto wrong = write(node, std::move(results[i]), outputs[i])) return wrong;
    }
    return std::nullopt;
  }

  /// Computes the output of a codec step. Returns the error, if any, as the end of a sentence.
  std::optional<std::string> play_codec(Node node, SymbolicRuns& result) {
    std::vector<SymbolicRuns> sources;
    for (const Range& source : steps_[node].sources) sources.push_back(read(source));
    if (auto wrong = play_codec_step(steps_[node], sources, result)) return wrong;
    if (is_codec(steps_[node], CodecVerb::kFold) && !is_own(node, sources[0])) {
      return "adds residuals to other contributions than its own";
    }
    if (is_codec(steps_[node], CodecVerb::kInspect)) {
      inspected_[steps_[node].sources[0].rank].push_back(sources[0]);
    }
    return std::nullopt;
  }

  /// Whether elements that a step folds have its rank's contribution, and none that another fold
  /// adds residuals to.
  bool is_own(Node fold, const SymbolicRuns& elements) const {
    return std::ranges::all_of(elements, [&](const SymbolicRun& run) {
      const auto has_part_of = [&](Node node) {
        return run.value.counts[steps_.rank_of(node)] > 0;
      };
      return has_part_of(fold) && std::ranges::none_of(folds_, [&](Node other) {
               const Range& range = steps_[other].target;
               return other != fold && has_part_of(other) &&
                      range.offset < run.element + run.count && run.element < range.end();
             });
    });
  }

  SymbolicRuns sum_of_sources(const Step& line) {
    SymbolicRuns sum = read(line.sources[0]);
    for (std::size_t i = 1; i < line.sources.size(); ++i) {
      sum = combine(sum, read(line.sources[i]));
    }
    return sum;
  }

  /// Computes the output of each native step of one meeting, in the order of `write_native`.
  void play_meeting(const std::vector<Node>& steps,
                    std::map<Node, std::vector<SymbolicRuns>>& results) {
    const NativeOp op = steps_[steps.front()].native;
    if (has_parts(op)) return play_parts(steps, op, results);
    if (op == NativeOp::kAllGather) {
      SymbolicRuns gathered;
      for (Node node : steps) {
        const SymbolicRuns part = read(steps_[node].sources[0]);
        gathered.insert(gathered.end(), part.begin(), part.end());
      }
      for (Node node : steps) results[node] = {gathered};
      return;
    }
    for (Node node : steps) {  // the whole buffer, or this rank's part
      results[node].resize(1);
      const std::size_t skipped = steps_[node].target.offset - steps_[node].sources[0].offset;
      for (Node other : steps) {
        Range range = steps_[other].sources[0];
        range.offset += skipped;
        range.count = steps_[node].target.count;
        combine_into(results[node].front(), other == steps.front(), read(range));
      }
    }
  }

  static void combine_into(SymbolicRuns& sum, bool is_first, SymbolicRuns addend) {
    sum = is_first ? std::move(addend) : combine(sum, addend);
  }

  void play_parts(const std::vector<Node>& steps, NativeOp op,
                  std::map<Node, std::vector<SymbolicRuns>>& results) {
    const std::size_t ranks = steps.size();
    for (std::size_t i = 0; i < ranks; ++i) {
      std::vector<SymbolicRuns>& result = results[steps[i]];
      result.resize(steps_[steps[i]].mirrors.size());
      for (std::size_t target = 0; target < result.size(); ++target) {
        if (op == NativeOp::kReduceParts) {  // this rank's part of tensor `target`
          for (Node other : steps) {
            const Range& part = steps_[other].sources[target * ranks + i];
            combine_into(result[target], other == steps.front(), read(part));
          }
          continue;
        }
        const std::size_t tensor = target / ranks;
        const std::vector<Range>& sources = steps_[steps[target % ranks]].sources;
        const bool gathers = op == NativeOp::kGatherParts;
        result[target] = read(gathers ? sources[tensor] : sources[tensor * ranks + i]);
      }
    }
  }

  SymbolicRuns read(const Range& range) {
    if (range.region == Region::kExposedInput) return read_exposed(range);
    if (range.region == Region::kExposedResult) {
      return read(ExposedBuffer::elements(range, schedules_[0].layout.dtype));
    }
    return contents_[{range.rank, range.region}].read(range.offset, range.count);
  }

  /// Returns the contents of the tensors if the slot holds the same; otherwise undefined elements.
  SymbolicRuns read_exposed(const Range& range) {
    const SymbolicRuns tensors = read(ExposedBuffer::of(range, schedules_[0].layout).tensors);
    const SymbolicRuns copy = read(ExposedBuffer::elements(range, schedules_[0].layout.dtype));
    return is_same(tensors, copy) ? tensors : SymbolicRuns{{.count = range.count}};
  }

  // Contributions and results are in the caller's tensors.
  Region input_region() const {
    return schedules_[0].layout.out_of_place ? Region::kInput : result_region();
  }
  Region result_region() const {
    return schedules_[0].layout.placement == Placement::kInPlace ? Region::kBucket : Region::kUser;
  }

  const AllSteps& steps_;
  std::span<const Schedule> schedules_;
  const CollectiveSpec& spec_;
  std::map<std::pair<int, Region>, Contents> contents_;
  std::map<std::pair<int, std::size_t>, Range> offers_;  // open exposures, by rank and slot
  bool has_codec_ = false;
  std::vector<Node> folds_;
  std::map<int, std::vector<SymbolicRuns>> inspected_;  // by rank
};

}  // namespace

std::optional<std::string> play_symbolically(const AllSteps& steps,
                                             std::span<const AllSteps::Node> order,
                                             const Meetings& meetings, const CollectiveSpec& spec) {
  Play play(steps, spec);
  if (auto wrong = play.play(order, meetings)) return wrong;
  return play.check_result();
}

}  // namespace kolo
