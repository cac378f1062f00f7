#pragma once

#include "trainer/catalog.h"

namespace kolo::trainer {

/// Runs the training job of the command line on all ranks, with the choices in `catalog`. Returns
/// the exit status of the program; errors are reported on stderr.
int run_trainer(const Catalog& catalog, int argc, const char* const* argv);

}  // namespace kolo::trainer
