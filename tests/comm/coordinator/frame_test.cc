#include "comm/coordinator/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "tests/support/allocations.h"

namespace kolo {
namespace {

constexpr int kKinds = static_cast<int>(FrameKind::kDecline) + 1;

using Random = std::mt19937_64;

std::string random_text(Random& random) {
  std::string text(random() % 40, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

ProposalKey random_key(Random& random) { return {random(), random()}; }

AggregatedReport random_report(Random& random) {
  std::vector<PendingKey> keys(random() % 5);
  for (PendingKey& key : keys) {
    key = {.key = random_key(random), .text = random_text(random), .sequence = random()};
  }
  std::vector<AggregatedReport> reports(1);
  if (random() % 4 == 0) reports[0].unknown_from = random_key(random);
  reports[0].mute.resize(random() % 3);
  for (MuteRank& mute : reports[0].mute) {
    mute = {.rank = static_cast<int>(random() % 100),
            .silence = std::chrono::milliseconds(random()),
            .stuck_in = random_text(random)};
  }
  const int ranks = static_cast<int>(random() % 5);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<PendingKey> pending;
    for (const PendingKey& key : keys) {
      if (random() % 3 == 0) continue;
      pending.push_back(key);
      pending.back().past = random() % 4 == 0;
      pending.back().blocking = !pending.back().past && random() % 2 == 0;
    }
    const ActivitySnapshot act{.text = random_text(random),
                               .age = std::chrono::milliseconds(random())};
    reports.push_back(report_of({.rank = 3 * rank, .act = act}, pending, random() % 2 == 0));
  }
  return combine(std::move(reports));
}

/// Returns a frame of this kind with random values in all fields of the kind.
Frame random_frame(FrameKind kind, Random& random) {
  Frame frame{.kind = kind,
              .key = random_key(random),
              .least = random(),
              .greatest = random(),
              .keys = {},
              .report = {},
              .error = {}};
  if (kind == FrameKind::kReject || kind == FrameKind::kQuery || kind == FrameKind::kInvite) {
    frame.keys.resize(random() % 5);
    for (ProposalKey& key : frame.keys) key = random_key(random);
  }
  if (kind == FrameKind::kReport) frame.report = random_report(random);
  if (kind == FrameKind::kReject || kind == FrameKind::kWarn || kind == FrameKind::kFail ||
      kind == FrameKind::kRefuse || kind == FrameKind::kDecline) {
    frame.error = {.code = static_cast<ErrorCode>(random() % 12),
                   .rank = static_cast<int>(random() % 100) - 1,
                   .peer = static_cast<int>(random() % 100) - 1,
                   .verb = random_text(random),
                   .bucket = random_text(random),
                   .what = random_text(random)};
  }
  if (kind == FrameKind::kOffer) {
    static constexpr std::byte kElements[8]{std::byte{1}, std::byte{2}, std::byte{0xFF}};
    const auto random_dtype = [&] { return kAllDTypes[random() % std::size(kAllDTypes)]; };
    frame.offer = {.tag = random(),
                   .number = random(),
                   .count = random(),
                   .dtype = random_dtype(),
                   .delivery = static_cast<Delivery>(random() % 3)};
    for (std::size_t more = random() % 4; more > 0; --more) {
      frame.offer.more.push_back({.count = random(), .dtype = random_dtype()});
    }
    frame.payload = std::span(kElements).first(random() % 8);
  }
  if (kind == FrameKind::kInvite) {
    frame.text = random_text(random);
    frame.terms.resize(random() % 8, std::byte{7});
  }
  return frame;
}

void expect_equal(const Frame& a, const Frame& b) {
  const auto fields = [](const Frame& f) {
    return std::tie(f.kind, f.key, f.least, f.greatest, f.keys, f.error.code, f.error.rank,
                    f.error.peer, f.error.verb, f.error.bucket, f.error.what);
  };
  EXPECT_EQ(fields(a), fields(b));
  EXPECT_EQ(a.offer, b.offer);
  EXPECT_TRUE(std::ranges::equal(a.payload, b.payload));
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.terms, b.terms);
  EXPECT_EQ(a.report, b.report);
}

TEST(Frame, OfEveryKindComesBack) {
  constexpr unsigned kSeed = 1;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Random random(kSeed);
  std::vector<std::byte> bytes;
  for (int round = 0; round < 100; ++round) {
    for (int kind = 0; kind < kKinds; ++kind) {
      const Frame frame = random_frame(static_cast<FrameKind>(kind), random);
      encode(frame, bytes);
      const auto decoded = decode(bytes);
      ASSERT_TRUE(decoded) << "kind " << kind;
      expect_equal(*decoded, frame);
    }
  }
}

TEST(Frame, CutShortOrContinuedIsNoFrame) {
  constexpr unsigned kSeed = 2;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Random random(kSeed);
  std::vector<std::byte> bytes;
  for (int round = 0; round < 20; ++round) {
    for (int kind = 0; kind < kKinds; ++kind) {
      encode(random_frame(static_cast<FrameKind>(kind), random), bytes);
      for (std::size_t length = 0; length < bytes.size(); ++length) {
        // A copy of exactly this size lets AddressSanitizer detect reads beyond it.
        const std::vector<std::byte> cut(bytes.begin(),
                                         bytes.begin() + static_cast<std::ptrdiff_t>(length));
        ASSERT_FALSE(decode(cut)) << "kind " << kind << " cut to " << length;
      }
      bytes.push_back(std::byte{0});
      ASSERT_FALSE(decode(bytes)) << "kind " << kind << " with a byte more";
    }
  }
}

TEST(Frame, DamagedIsNothingOrAnotherFrameAndAllocatesNoMoreThanItsSizeExplains) {
  constexpr unsigned kSeed = 3;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Random random(kSeed);
  std::vector<std::byte> bytes, again;
  std::size_t survivors = 0;
  for (int mutation = 0; mutation < 40'000; ++mutation) {
    encode(random_frame(static_cast<FrameKind>(random() % kKinds), random), bytes);
    for (std::size_t changes = random() % 4 + 1; changes > 0; --changes) {
      bytes[random() % bytes.size()] =
          random() % 4 == 0 ? std::byte{0xFF} : static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());

    const test::AllocationCounter allocations;
    const auto frame = decode(bytes);
    // List elements take at most four times their shortest encoding, and a text is copied once
    // more. Each entry of a report has a copy of the texts.
    const std::size_t copies = bytes[0] == static_cast<std::byte>(FrameKind::kReport)
                                   ? AggregatedReport::kMostKinds + 1
                                   : 1;
    ASSERT_LE(allocations.bytes(), 8 * copies * bytes.size() + 64) << "mutation " << mutation;
    if (!frame) continue;
    ++survivors;
    encode(*frame, again);
    ASSERT_EQ(again.size(), bytes.size()) << "mutation " << mutation;
    const auto twice = decode(again);
    ASSERT_TRUE(twice) << "mutation " << mutation;
    expect_equal(*twice, *frame);
  }
  EXPECT_GT(survivors, 1000u);  // else the mutations would test only lengths
}

TEST(Frame, ListLongerThanItsBytesIsRefusedBeforeItIsMade) {
  for (FrameKind kind : {FrameKind::kReject, FrameKind::kReport, FrameKind::kInvite}) {
    std::vector<std::byte> bytes;
    encode({.kind = kind}, bytes);
    constexpr std::size_t kCountAt = 1 + 4 * sizeof(std::uint64_t);
    for (std::size_t i = 0; i < 4; ++i) bytes[kCountAt + i] = std::byte{0xFF};
    const test::AllocationCounter allocations;
    EXPECT_FALSE(decode(bytes));
    EXPECT_LT(allocations.bytes(), 1024u);
  }
}

TEST(FrameKey, NamesAndBucketsHaveKeySpacesOfTheirOwn) {
  for (const char* name : {"", "x", "y", "gradients model"}) {
    EXPECT_FALSE(is_bucket_hash(name_hash(name))) << name;
  }
  EXPECT_NE(name_hash("x"), name_hash("y"));
  for (BucketId bucket : {BucketId{0}, BucketId{7}, kMaxBuckets - 1}) {
    EXPECT_TRUE(is_bucket_hash(bucket_hash(bucket)));
    EXPECT_EQ(bucket_of(bucket_hash(bucket)), bucket);
  }
}

}  // namespace
}  // namespace kolo
