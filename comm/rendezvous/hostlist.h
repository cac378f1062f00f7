#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// Host names that a Slurm host list stands for, in its order. Brackets hold comma-separated
/// numbers and ranges, keep leading zeros, and may appear several times in one name.
///
///   "login,n[01-03,7]-ib"  ->  login n01-ib n02-ib n03-ib n7-ib
///
/// Threads: pure; any.
/// Errors:  KoloError(kConfig) naming the list: unbalanced or empty brackets, a range that falls,
///          more than kMaxHosts names.
/// Source:  scontrol(1), "show hostnames".
std::vector<std::string> parse_hostlist(std::string_view list);

inline constexpr std::size_t kMaxHosts = 1U << 17;

}  // namespace kolo
