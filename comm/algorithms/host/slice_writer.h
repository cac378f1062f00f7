#pragma once

#include "comm/algorithms/host/slices.h"
#include "comm/schedule/schedule_builder.h"

namespace kolo {

/// Appends what the builder's rank does with the slices of its node, which have their slots.
void append_steps(ScheduleBuilder& builder, const Slices& slices);

}  // namespace kolo
