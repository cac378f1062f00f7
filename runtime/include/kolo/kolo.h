#pragma once

/// Public header: `#include <kolo/kolo.h>`, both in this source tree and once installed.

// Before C++17, includes nothing, so that the compiler reports only this error.
#if __cplusplus < 201703L
#error "kolo.h needs C++17: compile with -std=c++17 or later. kolo_c.h serves C and any C++."
#else
#include "runtime/api/kolo.h"
#include "runtime/store/parameter_store.h"
#endif
