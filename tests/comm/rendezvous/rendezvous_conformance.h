#pragma once

#include "comm/rendezvous/rendezvous.h"

namespace kolo::testing {

/// What every rendezvous must do, seen from one rank; all ranks of the job call it together, each
/// from its own thread or process.
void expect_conforming(Rendezvous& rendezvous, int expected_rank, int expected_size);

}  // namespace kolo::testing
