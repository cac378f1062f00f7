#include "trainer/compute/threads.h"

// oneDNN brings its own OpenMP run-time library (libgomp). Declared here because <omp.h> belongs to
// the compiler, and Clang's describes another library.
extern "C" void omp_set_num_threads(int threads);

namespace kolo::trainer {

void set_compute_threads(int threads) { omp_set_num_threads(threads); }

}  // namespace kolo::trainer
