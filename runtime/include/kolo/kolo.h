#pragma once

/// What users include: `#include <kolo/kolo.h>`, from this source tree and once installed.

// Without the rest, so that this is the only error.
#if __cplusplus < 201703L
#error "kolo.h needs C++17: compile with -std=c++17 or later. kolo_c.h serves C and any C++."
#else
#include "runtime/api/kolo.h"
#endif
