#pragma once

#include <gtest/gtest.h>

#include "comm/base/error.h"

namespace kolo::test {

/// Returns the KoloError that a call throws. If the call throws none, the test fails.
template <typename Call>
Error thrown_error(const Call& call) {
  try {
    call();
  } catch (const KoloError& error) {
    return error.error();
  }
  ADD_FAILURE() << "throws no KoloError";
  return {};
}

}  // namespace kolo::test
