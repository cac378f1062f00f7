#pragma once

#include "comm/collective/compile_options.h"
#include "comm/schedule/goal.h"
#include "comm/schedule/schedule_builder.h"
#include "topology/process_grid.h"

namespace kolo {

/// Appends the steps of one rank that reach `goal`, for tensors in host memory that have the
/// bucket's dtype. Any goal will do; for an all-reduce the registry has better.
///
/// Elements travel in pieces through slots of staging memory, which ranks use in rotation. Their
/// way is the shortest: inside a node a receiver reads the slot of the contributor, and each piece
/// enters a node once.
///
///   moved     contributor's slot -> receivers of its node
///             contributor's slot -> slot of one receiver in another node -> the others there
///   summed    contributors' slots -> the receiver, which sums in the order of ranks
///             contributors' slots -> a rank of their node, which sums -> the receiver
///
/// The last form is for sums whose parts may be rounded: those of 16-bit floats are made in one
/// place. If a large bucket has one receiver, each rank sums a share of it and hands it over.
///
/// Before: the layout is Placement::kUser; goal, layout, grid and options are equal on all ranks.
/// Cost:   per rank and element: one copy in and one out, and inside a node three flags at most.
void append_exchange(ScheduleBuilder& builder, const Goal& goal, const ProcessGrid& grid,
                     const CompileOptions& options);

}  // namespace kolo
