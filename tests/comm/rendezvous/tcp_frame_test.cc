#include "comm/rendezvous/tcp_connection.h"

#include <gmock/gmock.h>

namespace kolo {
namespace {

TEST(TcpFrame, HelloHasItsLayout) {
  const Hello hello{.version = 1, .rank = 2, .size = 0x01020304, .job_hash = 0x1122334455667788};
  const std::string bytes = encode_hello(hello);
  using namespace std::string_literals;
  EXPECT_EQ(bytes, "KOLORDV\n\1\0\0\0\2\0\0\0\4\3\2\1\0\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11"s);
  EXPECT_EQ(bytes.size(), kHelloBytes);
  EXPECT_EQ(decode_hello(bytes), hello);
}

TEST(TcpFrame, HelloIsToldFromOtherBytes) {
  const std::string bytes = encode_hello({});
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    EXPECT_TRUE(may_be_hello(std::string_view(bytes).substr(0, length)));
    if (length < bytes.size()) {
      EXPECT_FALSE(decode_hello(bytes.substr(0, length)));
    }
  }
  EXPECT_FALSE(may_be_hello("GET / HTTP/1.1"));
  EXPECT_FALSE(may_be_hello("K\n"));
  EXPECT_FALSE(decode_hello(bytes + "x"));
}

TEST(TcpFrame, FrameHeaderReadsBack) {
  const auto header = decode_frame_header(encode_frame(TcpFrameKind::kData, "12345"));
  ASSERT_TRUE(header);
  EXPECT_EQ(header->kind, TcpFrameKind::kData);
  EXPECT_EQ(header->length, 5U);
  EXPECT_FALSE(decode_frame_header(std::string(kFrameHeaderBytes, '\0')));
  EXPECT_FALSE(decode_frame_header(std::string(kFrameHeaderBytes, '\xff')));
}

TEST(TcpFrame, GatheredReadsBackAndNothingElse) {
  const std::vector<std::string> contributions{"", "a", std::string(1000, '\0'), ""};
  const std::string bytes = encode_gathered(contributions);
  EXPECT_EQ(decode_gathered(bytes, 4), contributions);
  EXPECT_FALSE(decode_gathered(bytes, 3));
  EXPECT_FALSE(decode_gathered(bytes, 5));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_gathered(bytes.substr(0, length), 4)) << length;
  }
  EXPECT_FALSE(decode_gathered(std::string(8, '\xff'), 1));
}

TEST(TcpFrame, ErrorReadsBack) {
  const Error error{.code = ErrorCode::kPeerLost, .rank = 0, .peer = -1, .what = "gone"};
  const auto read = decode_error(encode_error(error));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->code, error.code);
  EXPECT_EQ(read->rank, 0);
  EXPECT_EQ(read->peer, -1);
  EXPECT_EQ(read->what, "gone");
  EXPECT_FALSE(decode_error("short"));
  EXPECT_FALSE(decode_error(std::string(12, '\xff')));
}

TEST(TcpFrame, JobHashIsFnv1a) {
  EXPECT_EQ(hash_job_id(""), 0xcbf29ce484222325U);
  EXPECT_EQ(hash_job_id("a"), 0xaf63dc4c8601ec8cU);
}

}  // namespace
}  // namespace kolo
