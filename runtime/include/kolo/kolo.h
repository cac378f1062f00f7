#pragma once

/// What users include: `#include <kolo/kolo.h>`, from this source tree and once installed.

#include "runtime/api/kolo.h"
