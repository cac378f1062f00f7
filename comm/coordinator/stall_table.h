#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "comm/coordinator/aggregated_report.h"
#include "comm/coordinator/last_activity.h"
#include "comm/coordinator/rank_set.h"

namespace kolo {

/// A tensor that some ranks wait for and other ranks have not submitted.
struct StalledTensor {
  std::string text = {};  ///< Description in one line.
  std::chrono::milliseconds age{0};
  RankSet waiting = {};
  RankSet missing = {};
};

/// A rank that has not submitted a stalled tensor.
struct MissingRank {
  int rank = 0;
  ActivitySnapshot last = {};
  std::vector<std::string> waits_for = {};  ///< Tensors, each described in one line.
};

/// All ranks that have not submitted a stalled tensor.
struct MissingRanks {
  std::size_t count = 0;
  std::vector<MissingRank> first = {};  ///< Some of these ranks, ascending.
};

/// Makes the table of stalled tensors, of limited length:
///
///   1 tensor has waited for ranks that have not submitted it, or do not answer:
///     'grad 7': all_reduce float32 [1024] sum
///       for 61 s; waiting: ranks 0, 2; missing: rank 1; no answer: rank 3
///   what the missing ranks did last:
///     rank 1: completed 'grad 6': all_reduce float32 [64] sum, 62 s ago
///   the ranks that do not answer:
///     rank 3: for 5 s, stuck in 'run', in a call that has not returned
///
/// Pure.
std::string stall_table(std::span<const StalledTensor> tensors, const MissingRanks& missing,
                        std::span<const MuteRank> mute);

}  // namespace kolo
