#include "benchmarks/peers/streaming_sum.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "benchmarks/common/host_memory.h"

namespace kolo::bench {
namespace {

/// Streams of `count` floats: in stream s, element i is s + 1 + i.
class Streams {
 public:
  Streams(std::size_t streams, std::size_t count) {
    for (std::size_t s = 0; s < streams; ++s) {
      memory_.emplace_back(count * sizeof(float));
      data_.push_back(reinterpret_cast<float*>(memory_.back().data()));
      for (std::size_t i = 0; i < count; ++i) data_[s][i] = static_cast<float>(s + 1 + i);
    }
  }
  const std::vector<float*>& data() const { return data_; }

 private:
  std::vector<HostMemory> memory_;
  std::vector<float*> data_;
};

void expect_sums(std::size_t streams, std::size_t count, Stores stores) {
  const Streams in(streams, count), out(streams, count);
  const std::vector<const float*> sources(in.data().begin(), in.data().end());
  streaming_sum(sources, out.data(), count, stores);
  streaming_sum(sources, in.data(), count, stores);  // in place
  for (std::size_t i = 0; i < count; ++i) {
    const auto sum = static_cast<float>(streams * i + streams * (streams + 1) / 2);
    for (std::size_t s = 0; s < streams; ++s) {
      ASSERT_EQ(out.data()[s][i], sum) << streams << " streams, element " << i;
      ASSERT_EQ(in.data()[s][i], sum) << streams << " streams in place, element " << i;
    }
  }
}

TEST(StreamingSum, WritesTheSumToEveryOutput) {
  for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
    for (std::size_t streams : std::initializer_list<std::size_t>{1, 2, 4, 7}) {
      for (std::size_t count : std::initializer_list<std::size_t>{0, 1, 63, 64, 65, 1000}) {
        expect_sums(streams, count, stores);
      }
    }
  }
}

}  // namespace
}  // namespace kolo::bench
