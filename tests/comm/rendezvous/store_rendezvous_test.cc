#include "comm/rendezvous/store_rendezvous.h"
#include "tests/support/thrown_error.h"

#include <gmock/gmock.h>

#include <stdexcept>

namespace kolo {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::UnorderedElementsAre;
using Values = std::map<std::string, std::string>;

constexpr milliseconds kLimit{7'000};

/// A store for ranks that run one after the other in one thread: `get` fails if there is no value,
/// or if its limit is shorter than the way to the store.
class PlainStore final : public KeyValueStore {
 public:
  explicit PlainStore(Values& values, milliseconds way = milliseconds(1))
      : values_(values), way_(way) {}

  void set(const std::string& key, const std::string& value) override { values_[key] = value; }
  std::string get(const std::string& key, milliseconds timeout) override {
    EXPECT_GE(timeout.count(), 1);
    if (timeout < way_ || !values_.contains(key)) {
      throw KoloError({.code = ErrorCode::kTimeout, .what = "no " + key});
    }
    return values_[key];
  }

 private:
  Values& values_;
  const milliseconds way_;
};

class BrokenStore final : public KeyValueStore {
 public:
  void set(const std::string&, const std::string&) override { fail(); }
  std::string get(const std::string&, milliseconds) override { fail(); }

 private:
  [[noreturn]] static void fail() {
    throw KoloError({.code = ErrorCode::kIo, .what = "the store has gone"});
  }
};

std::unique_ptr<StoreRendezvous> join(Values& values, int rank, int size) {
  return std::make_unique<StoreRendezvous>(
      std::make_unique<PlainStore>(values),
      StoreRendezvous::Config{.rank = rank, .size = size, .timeout = kLimit, .prefix = "job"});
}

Error error_of(Rendezvous& rendezvous) {
  return test::thrown_error([&] { rendezvous.all_gather("mine"); });
}

TEST(StoreRendezvous, KeysTellRoundAndRank) {
  Values values;
  const auto zero = join(values, 0, 2);
  const auto one = join(values, 1, 2);
  error_of(*one);  // rank 0 has not called yet
  EXPECT_THAT(zero->all_gather("zero"), ElementsAre("zero", "mine"));
  EXPECT_THAT(values, UnorderedElementsAre(Key("job/0/1"), Key("job/0/all")));
  error_of(*zero);
  EXPECT_TRUE(values.contains("job/1/all"));
}

TEST(StoreRendezvous, OneRankNeedsNoStore) {
  StoreRendezvous alone(std::make_unique<BrokenStore>(), {});
  EXPECT_THAT(alone.all_gather("alone"), ElementsAre("alone"));
  EXPECT_THAT(alone.all_gather("again"), ElementsAre("again"));
}

TEST(StoreRendezvous, AllRanksLearnWhichAreMissing) {
  Values values;
  const auto zero = join(values, 0, 5);
  const auto two = join(values, 2, 5);
  error_of(*two);  // leaves its contribution in the store
  const Error failure = error_of(*zero);
  EXPECT_EQ(failure.code, ErrorCode::kTimeout);
  EXPECT_EQ(failure.what, "rendezvous: nothing from rank 1, 3, 4 within 7000 ms");
  EXPECT_EQ(error_of(*join(values, 3, 5)).what, failure.what);
  EXPECT_EQ(error_of(*zero).what, failure.what) << "later calls";
}

// Rank 1 uses up the time of its round, but only rank 1 is missing.
TEST(StoreRendezvous, ALateRankDoesNotMakeLaterOnesMissing) {
  Values values;
  error_of(*join(values, 2, 3));  // leaves its contribution in the store
  StoreRendezvous zero(std::make_unique<PlainStore>(values, milliseconds(20)),
                       {.rank = 0, .size = 3, .timeout = milliseconds(1), .prefix = "job"});
  EXPECT_EQ(error_of(zero).what, "rendezvous: nothing from rank 1 within 1 ms");
}

TEST(StoreRendezvous, NamesRankZeroIfThatDoesNotCome) {
  Values values;
  const Error failure = error_of(*join(values, 1, 2));
  EXPECT_EQ(failure.code, ErrorCode::kTimeout);
  EXPECT_THAT(failure.what, HasSubstr("nothing from rank 0 within"));
}

TEST(StoreRendezvous, ARankThatFailsOtherwiseTellsAll) {
  for (const int gone : {0, 1}) {
    Values values;
    try {
      const auto left = join(values, gone, 2);
      throw std::runtime_error("bad option");
    } catch (const std::runtime_error&) {
    }
    const Error failure = error_of(*join(values, 1 - gone, 2));
    EXPECT_EQ(failure.code, ErrorCode::kPeerLost);
    EXPECT_EQ(failure.peer, gone);
    EXPECT_THAT(failure.what, HasSubstr("failed during start-up"));
  }
}

TEST(StoreRendezvous, ARankThatEndsInOrderSaysNothing) {
  Values values;
  join(values, 1, 2).reset();
  EXPECT_TRUE(values.empty());
}

TEST(StoreRendezvous, RanksOfAnotherWorldSizeAreRefused) {
  Values values;
  error_of(*join(values, 1, 3));
  const Error failure = error_of(*join(values, 0, 2));
  EXPECT_EQ(failure.code, ErrorCode::kConfig);
  EXPECT_THAT(failure.what, HasSubstr("rank 1 was started with world size 3, rank 0 with 2"));
  EXPECT_EQ(error_of(*join(values, 2, 3)).code, ErrorCode::kConfig);
}

TEST(StoreRendezvous, TornValuesAreRefused) {
  Values whole;
  error_of(*join(whole, 1, 2));
  const std::string value = whole.at("job/0/1");
  for (std::size_t length = 0; length <= value.size() + 1; ++length) {
    std::string torn = value;
    torn.resize(length, 'x');
    Values values = {{"job/0/1", torn}};
    const auto zero = join(values, 0, 2);
    if (length == value.size()) {
      EXPECT_THAT(zero->all_gather("zero"), ElementsAre("zero", "mine"));
      continue;
    }
    const Error failure = error_of(*zero);
    EXPECT_EQ(failure.code, ErrorCode::kIo) << length;
    EXPECT_THAT(failure.what, HasSubstr("'job/0/1'"));
  }
}

TEST(StoreRendezvous, PassesOnWhatTheStoreSays) {
  for (const int rank : {0, 1}) {
    StoreRendezvous rendezvous(std::make_unique<BrokenStore>(), {.rank = rank, .size = 2});
    EXPECT_EQ(error_of(rendezvous).what, "the store has gone");
  }
}

TEST(StoreRendezvous, ChecksRankSizeAndStore) {
  Values values;
  EXPECT_THROW(join(values, 2, 2), UsageError);
  EXPECT_THROW(join(values, -1, 2), UsageError);
  EXPECT_THROW(join(values, 0, 0), UsageError);
  EXPECT_THROW(StoreRendezvous(nullptr, {}), UsageError);
}

}  // namespace
}  // namespace kolo
