#pragma once

/// Marks functions that kernels call and that tests call on the processor.
#if defined(__CUDACC__)
#define KOLO_HOST_DEVICE __host__ __device__
#else
#define KOLO_HOST_DEVICE
#endif
