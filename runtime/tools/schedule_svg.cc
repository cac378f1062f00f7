#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/tools/schedule_view.h"

namespace kolo {
namespace {

// All sizes are in pixels.
constexpr std::size_t kBoxWidth = 104;
constexpr std::size_t kBoxHeight = 20;
constexpr std::size_t kBoxGap = 6;
constexpr std::size_t kRoundHeight = 44;
/// Vertical distance from a box to the point where its arrow meets the line of a peer.
constexpr std::size_t kReach = 16;
constexpr std::size_t kLeft = 44;
constexpr std::size_t kTop = 76;
constexpr std::size_t kLaneGap = 28;
/// Characters that fit a box.
constexpr std::size_t kBoxText = 16;

struct Point {
  std::size_t x = 0, y = 0;
};

/// A class of steps, with its colour.
struct Look {
  std::string_view name;
  std::string_view fill;
};
constexpr Look kMessage{"message", "#cfe3f7"};
constexpr Look kFlag{"flag", "#e6e6e6"};
constexpr Look kReduce{"reduce", "#f6b26b"};
constexpr Look kMove{"copy", "#d5ecd0"};
constexpr Look kDevice{"device collective", "#dccdf0"};
constexpr std::array kLooks = {kMessage, kFlag, kReduce, kMove, kDevice};

Look look_of(StepKind kind) {
  switch (kind) {
    case StepKind::kSend:
    case StepKind::kRecv:
      return kMessage;
    case StepKind::kSignal:
    case StepKind::kAwait:
    case StepKind::kExpose:
      return kFlag;
    case StepKind::kReduce:
      return kReduce;
    case StepKind::kNative:
      return kDevice;
    case StepKind::kCopy:
    case StepKind::kPack:
    case StepKind::kUnpack:
    case StepKind::kExchange:
    case StepKind::kCodec:
      break;
  }
  return kMove;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

/// Returns the range that a box names: the elements that are sent or that the step writes.
const Range& shown_range(const Step& step, const Step* send) {
  if (send != nullptr) return send->sources[0];
  return step.target.count > 0 || step.sources.empty() ? step.target : step.sources[0];
}

/// Returns the text of a box, "reduce 16-31", or only the kind if both do not fit. `send` is the
/// send that matches a receive.
std::string box_text(const Step& step, const Step* send) {
  const std::string_view kind = to_string(step.kind);
  if (step.kind == StepKind::kSignal || step.kind == StepKind::kAwait) {
    return fmt::format("{}{} {}", step.lag > 0 ? "late " : "", kind, step.peer);
  }
  const Range& range = shown_range(step, send);
  if (range.count == 0) return std::string(kind);
  const std::string text = fmt::format("{} {}-{}", kind, range.offset, range.end() - 1);
  return text.size() <= kBoxText ? text : std::string(kind);
}

class Drawing {
 public:
  Drawing(std::span<const Schedule> schedules, const ProcessGrid& grid)
      : schedules_(schedules), grid_(grid), order_(order_of(schedules, grid)) {
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      std::vector<std::size_t> used(order_.rounds);
      std::vector<std::size_t>& slots = slots_.emplace_back();
      for (const std::size_t round : order_.round[rank]) slots.push_back(used[round]++);
      boxes_ = std::max(boxes_, *std::ranges::max_element(used));
    }
  }

  std::string run() && {
    const std::size_t bottom = kTop + order_.rounds * kRoundHeight;
    const std::size_t width = lane_left(schedules_.size()) + kLaneGap;
    fmt::format_to(out(),
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
                   "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"11\">\n"
                   "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
                   "<defs><marker id=\"tip\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" "
                   "refY=\"4\" orient=\"auto\"><path d=\"M1,1 L7,4 L1,7 z\" fill=\"#444\"/>"
                   "</marker></defs>\n",
                   std::max<std::size_t>(width, 560), bottom + 56);
    draw_heading();
    draw_lanes(bottom);
    for (const Schedule& schedule : schedules_) draw_arrows(schedule);
    for (const Schedule& schedule : schedules_) draw_boxes(schedule);
    draw_legend(bottom + 24);
    return text_ + "</svg>\n";
  }

 private:
  std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }

  std::size_t lane_width() const { return boxes_ * (kBoxWidth + kBoxGap); }
  std::size_t lane_left(std::size_t rank) const {
    return kLeft + kLaneGap + rank * (lane_width() + kLaneGap);
  }
  std::size_t lane_centre(int rank) const {
    return lane_left(static_cast<std::size_t>(rank)) + lane_width() / 2;
  }
  std::size_t round_top(std::size_t round) const { return kTop + round * kRoundHeight; }

  /// Returns the upper left corner of a box.
  Point corner(StepPlace place) const {
    const auto rank = static_cast<std::size_t>(place.rank);
    return {lane_left(rank) + slots_[rank][place.step] * (kBoxWidth + kBoxGap),
            round_top(order_.round[rank][place.step])};
  }

  /// Returns the send that matches a receive; null for other steps.
  const Step* send_of(int rank, StepId id) const {
    const auto row = static_cast<std::size_t>(rank);
    if (schedules_[row].steps[id].kind != StepKind::kRecv) return nullptr;
    const StepPlace source = *order_.source[row][id];
    return &schedules_[static_cast<std::size_t>(source.rank)].steps[source.step];
  }

  void draw_heading() {
    const BucketLayout& layout = schedules_[0].layout;
    fmt::format_to(
        out(), "<text x=\"{}\" y=\"20\" font-size=\"13\">{}, {} elements of {}, {}</text>\n", kLeft,
        escaped(schedules_[0].algorithm), layout.count, to_string(layout.dtype), grid_text(grid_));
  }

  void draw_lanes(std::size_t bottom) {
    for (int rank = 0; rank < grid_.world_size(); ++rank) {
      fmt::format_to(out(),
                     "<text x=\"{0}\" y=\"44\" text-anchor=\"middle\" font-weight=\"bold\">rank "
                     "{1}</text>\n"
                     "<text x=\"{0}\" y=\"60\" text-anchor=\"middle\" fill=\"#555\">node "
                     "{2}</text>\n"
                     "<line x1=\"{0}\" y1=\"66\" x2=\"{0}\" y2=\"{3}\" stroke=\"#ccc\"/>\n",
                     lane_centre(rank), rank, grid_.node(rank), bottom);
    }
    for (std::size_t round = 0; round < order_.rounds; ++round) {
      fmt::format_to(out(), "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#555\">{}</text>\n",
                     kLeft - 8, round_top(round) + 14, round);
    }
  }

  void draw_arrow(Point from, Point to, std::string_view style) {
    fmt::format_to(out(),
                   "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#444\" {}"
                   "marker-end=\"url(#tip)\"/>\n",
                   from.x, from.y, to.x, to.y, style);
  }

  void draw_arrows(const Schedule& schedule) {
    constexpr std::string_view kDashed = "stroke-dasharray=\"4 3\" ";
    constexpr std::string_view kDotted = "stroke-dasharray=\"1 3\" ";
    const auto row = static_cast<std::size_t>(schedule.rank);
    for (StepId id = 0; id < schedule.steps.size(); ++id) {
      const Step& step = schedule.steps[id];
      const Point box = corner({schedule.rank, id});
      const Point top{box.x + kBoxWidth / 2, box.y};
      const Point bottom{top.x, box.y + kBoxHeight};
      if (const auto& source = order_.source[row][id]) {
        const Point from = corner(*source);
        draw_arrow({from.x + kBoxWidth / 2, from.y + kBoxHeight}, top,
                   step.kind == StepKind::kAwait ? kDashed : "");
      }
      for (const Range& range : step.sources) {
        if (range.rank == schedule.rank) continue;
        draw_arrow({lane_centre(range.rank), box.y - kReach}, top, kDotted);
      }
      for (const Range& range : step.mirrors) {
        if (range.rank == schedule.rank) continue;
        draw_arrow(bottom, {lane_centre(range.rank), bottom.y + kReach}, kDotted);
      }
    }
  }

  void draw_boxes(const Schedule& schedule) {
    for (StepId id = 0; id < schedule.steps.size(); ++id) {
      const Step& step = schedule.steps[id];
      const Point box = corner({schedule.rank, id});
      const Look look = look_of(step.kind);
      fmt::format_to(
          out(),
          "<g class=\"step\"><title>rank {} step {}: {}{} {}</title><rect x=\"{}\" y=\"{}\" "
          "width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{}\" stroke=\"#555\"{}/><text x=\"{}\" "
          "y=\"{}\" text-anchor=\"middle\">{}</text></g>\n",
          schedule.rank, id, to_string(step.kind),
          step.peer < 0 ? "" : fmt::format(" with rank {}", step.peer),
          escaped(operands_text(step, schedule.rank)), box.x, box.y, kBoxWidth, kBoxHeight,
          look.fill, step.kind == StepKind::kReduce ? " stroke-width=\"2\"" : "",
          box.x + kBoxWidth / 2, box.y + 14, box_text(step, send_of(schedule.rank, id)));
    }
  }

  void draw_legend(std::size_t y) {
    std::size_t x = kLeft;
    for (const Look& look : kLooks) {
      fmt::format_to(out(),
                     "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\" "
                     "stroke=\"#555\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
                     x, y, look.fill, x + 16, y + 10, look.name);
      x += 40 + 7 * look.name.size();
    }
    fmt::format_to(out(),
                   "<text x=\"{}\" y=\"{}\">down: rounds; solid: message, dashed: flag, dotted: "
                   "memory of a peer</text>\n",
                   kLeft, y + 26);
  }

  std::span<const Schedule> schedules_;
  const ProcessGrid& grid_;
  ScheduleOrder order_;
  std::vector<std::vector<std::size_t>> slots_;  // by rank and step: number of boxes to its left
  /// The largest number of boxes of a rank in one round.
  std::size_t boxes_ = 1;
  std::string text_;
};

}  // namespace

std::string schedule_svg(std::span<const Schedule> schedules, const ProcessGrid& grid) {
  return Drawing(schedules, grid).run();
}

}  // namespace kolo
