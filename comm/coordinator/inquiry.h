#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "comm/coordinator/combining_tree.h"
#include "comm/coordinator/joint_report.h"

namespace kolo {

/// One rank's part in the inquiries of the root, which go down the tree and whose reports come up:
/// a rank answers when all of its children have, or are given up, with one report for its whole
/// subtree. So no rank handles more than one question and one bounded answer per child. Pure state
/// machine.
class Inquiry {
 public:
  explicit Inquiry(const CombiningTree& tree) : tree_(tree) {}

  /// An inquiry has come, and `own` is what this rank reports. An older one is given up.
  void begin(std::uint64_t number, JointReport own);

  /// Takes the report of a child; one that is not owed, or answers another inquiry, is ignored.
  void report(int child, std::uint64_t number, JointReport report);

  /// The report of a child that does not answer is waited for no longer.
  void give_up(MuteRank child);

  /// The report of this rank's subtree, once, when it is complete.
  std::optional<JointReport> take_complete();

  std::uint64_t number() const { return number_; }
  /// Children whose report the open inquiry still lacks.
  const std::set<int>& silent_children() const { return silent_; }
  bool is_open() const { return !reports_.empty(); }

 private:
  const CombiningTree& tree_;
  std::uint64_t number_ = 0;
  std::vector<JointReport> reports_;
  std::set<int> silent_;
};

}  // namespace kolo
