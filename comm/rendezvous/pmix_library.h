#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/base/shared_library.h"

namespace kolo {

// The part of PMIx's interface that Kolo uses, as declared in pmix.h of versions 2 to 5, so that
// builds do not need that header. Source: PMIx Standard, versions 2.0 to 5.0.

using PmixStatus = int;
inline constexpr PmixStatus kPmixSuccess = 0;

/// One process of a job, or all processes.
struct PmixProcess {
  char job[256];
  std::uint32_t rank;
};
inline constexpr std::uint32_t kPmixAllRanks = UINT32_MAX - 1;

enum class PmixType : std::uint16_t { kBool = 1, kInt = 6, kUint32 = 14, kBytes = 27 };

struct PmixValue {
  PmixType type;
  union {
    bool flag;
    int integer;
    std::uint32_t uint32;
    struct {
      char* begin;
      std::size_t size;
    } bytes;
    void* longest[3];  // the size of the longest PMIx type
  };
};

/// A named argument of a PMIx call.
struct PmixInfo {
  char key[512];
  std::uint32_t flags;
  PmixValue value;
};

inline constexpr const char* kPmixJobSize = "pmix.job.size";
inline constexpr const char* kPmixCollectData = "pmix.collect";
inline constexpr const char* kPmixTimeout = "pmix.timeout";  ///< Type int, in seconds.
inline constexpr std::uint8_t kPmixGlobal = 3;               ///< Scope of data for all ranks.

/// The library libpmix.so.2. Errors: as `SharedLibrary`.
class PmixLibrary {
 public:
  PmixLibrary();

 private:
  const SharedLibrary library_;

 public:
  PmixStatus (*const init)(PmixProcess* self, PmixInfo*, std::size_t) = library_.find("PMIx_Init");
  PmixStatus (*const finalize)(const PmixInfo*, std::size_t) = library_.find("PMIx_Finalize");
  PmixStatus (*const put)(std::uint8_t scope, const char* key,
                          PmixValue*) = library_.find("PMIx_Put");
  PmixStatus (*const commit)() = library_.find("PMIx_Commit");
  PmixStatus (*const fence_nb)(const PmixProcess*, std::size_t, const PmixInfo*, std::size_t,
                               void (*done)(PmixStatus, void*),
                               void*) = library_.find("PMIx_Fence_nb");
  /// The caller frees the value and its bytes.
  PmixStatus (*const get)(const PmixProcess*, const char* key, const PmixInfo*, std::size_t,
                          PmixValue**) = library_.find("PMIx_Get");
  const char* (*const error_string)(PmixStatus) = library_.find("PMIx_Error_string");
};

}  // namespace kolo
