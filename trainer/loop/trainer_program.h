#pragma once

#include "trainer/catalog.h"

namespace kolo::trainer {

/// Runs the command of the command line, by default a training job on all ranks, with the choices
/// in `catalog`. Returns the exit status of the program; errors are reported on stderr.
int run_trainer(const Catalog& catalog, int argc, const char* const* argv);

}  // namespace kolo::trainer
