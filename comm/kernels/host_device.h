#pragma once

/// Marks functions that run both in kernels and, for tests, on the processor.
#if defined(__CUDACC__)
#define KOLO_HOST_DEVICE __host__ __device__
#else
#define KOLO_HOST_DEVICE
#endif
