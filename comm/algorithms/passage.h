#pragma once

#include <algorithm>

namespace kolo {

/// The cost of one chunk in an algorithm, by the resource that it keeps busy on the
/// busiest node.
///
/// Chunks follow each other as closely as the busiest resource allows, because the waits of several
/// chunks overlap, and so do links and processors:
///
///   link        ===0=== ===1=== ===2===             3 chunks: the time of one alone,
///   processors         --0--   --1--   --2--         then 2 times the pace
///
/// The busiest resource does not hide all that happens beside it. How much was not measured: the
/// small share here decides between algorithms that fill a link alike, and hardly anything else.
///
/// Units: microseconds.
struct Passage {
  static constexpr double kNotHidden = 0.05;

  double wait_us = 0;       ///< Nothing is busy: flags and messages are in flight.
  double link_us = 0;       ///< The node's link carries bytes that the next step waits for.
  double one_way_us = 0;    ///< The part of it in the busier direction: the other chunks use both.
  double processor_us = 0;  ///< Ranks move bytes, and handle steps and messages.

  double alone_us() const { return wait_us + link_us + processor_us; }
  double pace_us() const {
    const auto [hidden_us, busiest_us] = std::minmax({one_way_us, processor_us});
    return busiest_us + kNotHidden * hidden_us;
  }

  Passage& operator+=(const Passage& next) {
    wait_us += next.wait_us;
    link_us += next.link_us;
    one_way_us += next.one_way_us;
    processor_us += next.processor_us;
    return *this;
  }
  friend Passage operator+(Passage first, const Passage& next) { return first += next; }
  friend Passage operator*(double times, const Passage& one) {
    return {times * one.wait_us, times * one.link_us, times * one.one_way_us,
            times * one.processor_us};
  }
};

/// The slower of two passages that happen at the same time.
inline Passage slower(const Passage& a, const Passage& b) {
  return {std::max(a.wait_us, b.wait_us), std::max(a.link_us, b.link_us),
          std::max(a.one_way_us, b.one_way_us), std::max(a.processor_us, b.processor_us)};
}

/// `chunks` equal chunks, one after the other; at least 1, a fraction counts as its part.
///
/// A link that saves up a burst while it rests passes at once the bytes that take `burst_us` at its
/// rate. Collectives that follow each other move no more than the rate in each direction, and what
/// the link saved up since the last one: programs do something between small collectives.
///
///   16 KiB up and down a tree, 138 us per direction, 40 us without the bytes    40 + 2 * 138
///   the same with a burst of 256 KiB, after a rest of 100 us                   max(40, 138 - 100)
inline double pipeline_us(const Passage& one, double chunks, double burst_us = 0) {
  const double many = std::max(chunks, 1.0);
  const double all_us = one.alone_us() + (many - 1) * one.pace_us();
  const double no_bytes_us = one.wait_us + many * one.processor_us;
  const double at_the_rate_us = many * one.one_way_us + Passage::kNotHidden * no_bytes_us;
  constexpr double kRestUs = 100;
  return std::max({all_us - burst_us, no_bytes_us, at_the_rate_us - kRestUs});
}

}  // namespace kolo
