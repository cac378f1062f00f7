#pragma once

#include <algorithm>

namespace kolo {

/// The way of one chunk through an algorithm, by what it keeps busy on the busiest node.
///
/// Chunks follow each other as closely as the busiest resource lets them, because waits of several
/// chunks overlap, and so do link and processors:
///
///   link        ===0=== ===1=== ===2===             3 chunks: the way of one alone,
///   processors         --0--   --1--   --2--         then 2 times the pace
///
/// Units: microseconds.
struct Passage {
  double wait_us = 0;       ///< Nobody is busy: flags and messages are on their way.
  double link_us = 0;       ///< The node's link carries bytes.
  double processor_us = 0;  ///< Ranks move bytes, and handle steps and messages.

  double alone_us() const { return wait_us + link_us + processor_us; }
  double pace_us() const { return std::max(link_us, processor_us); }

  Passage& operator+=(const Passage& next) {
    wait_us += next.wait_us;
    link_us += next.link_us;
    processor_us += next.processor_us;
    return *this;
  }
  friend Passage operator+(Passage first, const Passage& next) { return first += next; }
  friend Passage operator*(double times, const Passage& one) {
    return {times * one.wait_us, times * one.link_us, times * one.processor_us};
  }
};

/// `chunks` equal chunks, one after the other; at least 1, a fraction counts as its part.
inline double pipeline_us(const Passage& one, double chunks) {
  return one.alone_us() + (std::max(chunks, 1.0) - 1) * one.pace_us();
}

}  // namespace kolo
