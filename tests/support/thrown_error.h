#pragma once

#include <gtest/gtest.h>

#include "comm/base/error.h"

namespace kolo::test {

/// The KoloError that a call throws; if it throws none, the test fails.
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
