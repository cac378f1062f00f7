// Tests input from outside the job, from damaged connections, and malformed host lists. Each input
// is refused, or read literally.

#include <gmock/gmock.h>

#include <random>

#include "comm/base/error.h"
#include "comm/rendezvous/launch.h"
#include "comm/rendezvous/tcp_connection.h"
#include "tests/support/allocations.h"
#include "tests/support/random_text.h"

namespace kolo {
namespace {

constexpr std::uint64_t kSeed = 6;
constexpr int kMutations = 50'000;

using Random = std::mt19937_64;

/// Changes a few bytes, and sometimes cuts the end off.
std::string damaged(std::string bytes, Random& random) {
  for (std::size_t left = random() % 4; left > 0 && !bytes.empty(); --left) {
    bytes[random() % bytes.size()] = random() % 4 == 0 ? '\xff' : static_cast<char>(random());
  }
  if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
  return bytes;
}

TEST(DamagedInput, HellosAndErrorsAreRefusedOrReadBackAsTheyAre) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Random random(kSeed);
  int hellos = 0, errors = 0;
  for (int i = 0; i < kMutations; ++i) {
    const std::string hello = damaged(
        encode_hello({.rank = static_cast<std::uint32_t>(random()), .job_hash = random()}), random);
    if (const auto read = decode_hello(hello)) {
      ++hellos;
      ASSERT_TRUE(may_be_hello(hello));
      ASSERT_EQ(decode_hello(encode_hello(*read)), read);
    }
    const std::string error = damaged(
        encode_error({.code = ErrorCode::kTimeout, .rank = 3, .peer = 4, .what = "late"}), random);
    if (const auto read = decode_error(error)) {
      ++errors;
      ASSERT_EQ(encode_error(*read), error);
    }
  }
  EXPECT_GT(hellos, kMutations / 10);
  EXPECT_GT(errors, kMutations / 10);
}

TEST(DamagedInput, WhatAllGaveIsRefusedOrReadBackAndNeverLongerThanItsBytes) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Random random(kSeed);
  int read_back = 0;
  for (int i = 0; i < kMutations; ++i) {
    std::vector<std::string> given(random() % 5);
    for (std::string& each : given) each.resize(random() % 40, 'x');
    const std::string bytes = damaged(encode_gathered(given), random);
    const test::AllocationCounter allocations;
    const auto read = decode_gathered(bytes, static_cast<int>(given.size()));
    // Room for the texts, and for a list of five texts that has doubled up to three times.
    ASSERT_LE(allocations.bytes(), 2 * bytes.size() + 16 * sizeof(std::string)) << "mutation " << i;
    if (!read) continue;
    ++read_back;
    ASSERT_EQ(encode_gathered(*read), bytes) << "mutation " << i;
  }
  EXPECT_GT(read_back, kMutations / 10);
}

TEST(DamagedInput, HostListsAreRefusedOrNameHosts) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  test::RandomText texts(kSeed, {"n", "host", "-ib", "[", "]", ",", "-", "0", "1", "01", "007",
                                 "16", "999999999", "131072", "."});
  int accepted = 0;
  for (int i = 0; i < kMutations; ++i) {
    const std::string text = texts.next({"login,n[01-03,7]-ib", "a[0-1]b[8-11],c"});
    try {
      const std::vector<std::string> hosts = parse_hostlist(text);
      ++accepted;
      ASSERT_FALSE(hosts.empty());
      ASSERT_LE(hosts.size(), 2 * kMaxHosts);
      for (const std::string& host : hosts) {
        ASSERT_FALSE(host.empty()) << "'" << text << "'";
        ASSERT_EQ(host.find_first_of("[],"), std::string::npos) << "'" << text << "'";
      }
    } catch (const KoloError& e) {
      ASSERT_EQ(e.error().code, ErrorCode::kConfig);
      ASSERT_THAT(e.error().what, testing::HasSubstr(text));
    }
  }
  EXPECT_GT(accepted, kMutations / 10);
}

}  // namespace
}  // namespace kolo
