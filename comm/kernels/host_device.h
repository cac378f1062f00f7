#pragma once

/// Marks functions that run in device kernels and on the processor.
#if defined(__CUDACC__)
#define KOLO_HOST_DEVICE __host__ __device__
#else
#define KOLO_HOST_DEVICE
#endif
