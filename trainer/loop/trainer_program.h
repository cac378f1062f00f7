#pragma once

#include "trainer/catalog.h"

namespace kolo::trainer {

/// Trains what the command line asks for, out of `catalog`, on all ranks of the job. Returns the
/// exit status of the program; errors are reported on stderr.
int run_trainer(const Catalog& catalog, int argc, const char* const* argv);

}  // namespace kolo::trainer
