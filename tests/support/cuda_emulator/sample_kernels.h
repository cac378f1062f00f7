#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// Launchers of correct kernels, and of kernels with one mistake each. They use memory of the
/// caller and run on this thread's emulated device.
namespace kolo::emulator::sample {

/// Sets sums[block] to the sum of the block's `threads` numbers, added through shared memory.
void sum_blocks(std::span<const std::uint32_t> numbers, unsigned threads, std::uint32_t* sums);
/// Computes the same as `sum_blocks`, but lacks the necessary barrier.
void sum_blocks_without_barrier(std::span<const std::uint32_t> numbers, unsigned threads,
                                std::uint32_t* sums);
/// Sets order[n] to the number of the block that ran as the n-th.
void record_order(unsigned blocks, std::uint32_t* counter, std::uint32_t* order);
/// Adds 100 z + 10 y + x to places[z][y][x] at each thread's position in the grid. The grid has 2 x
/// 3 x 2 blocks of 2 x 2 x 3 threads.
void record_places(std::uint32_t* places);
/// Each lane of two warps stores the ballot of the odd lanes, and the value of the lane 16 away.
void exchange_lanes(unsigned* ballots, double* across);
/// Reads shared memory that was never written.
void read_unwritten(float* into);

void barrier_for_some();                         ///< Half of the threads return before it.
void barriers_at_two_places();                   ///< Half of the threads wait at another barrier.
void ballot_without_all_lanes();                 ///< One lane does not vote in the ballot.
void ballot_of_half_a_warp();                    ///< The mask contains only half a warp.
void write_behind_shared_memory();               ///< Writes one element past the end.
void load_vector(const float* from, float* to);  ///< Loads and stores 16 bytes at once.
void launch_threads(unsigned threads, std::uint32_t* counter);  ///< Each thread adds 1.

}  // namespace kolo::emulator::sample
