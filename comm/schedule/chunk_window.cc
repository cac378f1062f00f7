#include "comm/schedule/chunk_window.h"

#include <utility>

namespace kolo {

void ChunkWindow::next_chunk() {
  ++number_;
  if (has_begun()) former_ = std::exchange(current(), Chunk{});
}

std::optional<StepId> ChunkWindow::before_send(int peer) const {
  const auto it = former_.last_from.find(peer);
  return it != former_.last_from.end() ? it->second : former_.last;
}

void ChunkWindow::received(int peer, StepId step) {
  if (!has_begun()) return;
  current().last_from[peer] = step;
  current().last = step;
}

std::optional<std::size_t> ChunkWindow::reuse_scratch(std::size_t count) {
  if (!has_begun()) return std::nullopt;
  auto& blocks = current().scratch;
  const std::size_t place = blocks.size();
  if (place >= former_.scratch.size() || former_.scratch[place].count < count) return std::nullopt;
  blocks.push_back(former_.scratch[place]);
  return blocks.back().offset;
}

void ChunkWindow::add_scratch(std::size_t offset, std::size_t count) {
  if (has_begun()) current().scratch.push_back({offset, count});
}

}  // namespace kolo
