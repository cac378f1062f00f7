#include "trainer/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "tests/support/random_text.h"
#include "tests/trainer/small_data.h"

namespace kolo::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Returns a file with this header and `data` data bytes 0, 1, 2, ...
std::string file_of(const std::string& header, std::size_t data) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  text += header;
  for (std::size_t i = 0; i < data; ++i) text += static_cast<char>(i);
  return text;
}

class SafetensorsTest : public testing::Test {
 protected:
  std::string error_of(const std::string& text) {
    const auto file = directory_.write("bad.safetensors", text);
    std::string error = data_error([&] { const SafetensorsFile opened(file); });
    EXPECT_THAT(error, HasSubstr(file.string()));
    return error;
  }

  TemporaryDirectory directory_;
};

// The Python package 0.8.0 writes these bytes for save({"b": uint8 [1, 2, 3], "a": float32 [[1,
// -2]]}, metadata={"k": "v"}). Larger elements come first, and spaces pad the header to a multiple
// of 8.
TEST_F(SafetensorsTest, ReadsBytesOfTheReferenceImplementation) {
  std::string text = std::string("\x88\0\0\0\0\0\0\0", 8) +
                     R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,2],"data_offsets")"
                     R"(:[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  text.resize(8 + 0x88, ' ');
  text += std::string("\0\0\x80\x3f\0\0\0\xc0\1\2\3", 11);
  const SafetensorsFile file(directory_.write("golden.safetensors", text));
  EXPECT_EQ(file.metadata(), (Metadata{{"k", "v"}}));
  ASSERT_EQ(file.tensors().size(), 2u);
  const StoredTensor& a = file.tensors()[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, "F32");
  EXPECT_EQ(a.shape, (Shape{1, 2}));
  std::array<float, 2> values{};
  std::memcpy(values.data(), a.bytes.data(), a.bytes.size());
  EXPECT_EQ(values, (std::array<float, 2>{1.0f, -2.0f}));
  const StoredTensor* b = file.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->bytes.size(), 3u);
  EXPECT_EQ(b->bytes[2], std::byte{3});
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST_F(SafetensorsTest, WritesTheseBytes) {
  const std::array<float, 2> a{1.0f, -2.0f};
  const std::array<std::uint8_t, 3> b{1, 2, 3};
  const auto file = directory_.path() / "out.safetensors";
  const FileSum sum = write_safetensors(
      file,
      {{.name = "b", .dtype = "U8", .shape = {3}, .bytes = std::as_bytes(std::span(b))},
       {.name = "a", .dtype = "F32", .shape = {1, 2}, .bytes = std::as_bytes(std::span(a))}},
      {{"k", "v"}});
  // Data begins at byte 192, a multiple of 64.
  std::string expected = std::string("\xb8\0\0\0\0\0\0\0", 8) +
                         R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,2],)"
                         R"("data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],)"
                         R"("data_offsets":[8,11]}})";
  expected.resize(192, ' ');
  expected += std::string("\0\0\x80\x3f\0\0\0\xc0\1\2\3", 11);
  const SafetensorsFile written(file);
  const auto bytes = written.bytes();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), expected);
  EXPECT_EQ(sum, sum_of(bytes));
}

TEST_F(SafetensorsTest, KeepsNumbersEmptyTensorsAndOddNames) {
  const double number = 0.1;
  const auto file = directory_.path() / "odd.safetensors";
  write_safetensors(file,
                    {{.name = "none", .dtype = "F32", .shape = {4, 0}, .bytes = {}},
                     {.name = "\"quoted\" ü\n",
                      .dtype = "F64",
                      .shape = {},
                      .bytes = std::as_bytes(std::span(&number, 1))},
                     {.name = "nothing", .dtype = "U8", .shape = {0}, .bytes = {}}},
                    {});
  const SafetensorsFile read(file);
  ASSERT_EQ(read.tensors().size(), 3u);
  ASSERT_NE(read.find("none"), nullptr);
  EXPECT_EQ(read.find("none")->shape, (Shape{4, 0}));
  ASSERT_NE(read.find("\"quoted\" ü\n"), nullptr);
  EXPECT_EQ(std::memcmp(read.find("\"quoted\" ü\n")->bytes.data(), &number, 8), 0);
}

TEST_F(SafetensorsTest, RefusesToWriteBytesThatDoNotFitTheShape) {
  const float value = 1;
  const StoredTensor wrong{
      .name = "w", .dtype = "F32", .shape = {2}, .bytes = std::as_bytes(std::span(&value, 1))};
  EXPECT_THROW(safetensors_header({wrong}, {}), UsageError);
  EXPECT_THROW(safetensors_header({{.name = "w", .dtype = "F99", .shape = {}, .bytes = {}}}, {}),
               UsageError);
}

TEST_F(SafetensorsTest, SaysWhereTheBeginningIsWrong) {
  EXPECT_THAT(error_of("abc"), HasSubstr("at byte 3: the file ends before"));
  EXPECT_THAT(error_of(""), HasSubstr("at byte 0: the file ends before"));
  EXPECT_THAT(error_of("\x89PNG and more"), HasSubstr("not a safetensors file?"));
  EXPECT_THAT(error_of(std::string("\x30\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("a header of 48 bytes, but the file has only 10"));
  EXPECT_THAT(error_of(file_of("", 0)), HasSubstr("a header begins with '{'"));
  EXPECT_THAT(error_of(file_of("[1]", 0)), HasSubstr("at byte 8: a header begins with '{'"));
  EXPECT_THAT(error_of(file_of(R"({"a":})", 0)), HasSubstr("at byte 13: the header is no JSON"));
  EXPECT_THAT(error_of(file_of(R"({"a":1e999})", 0)), HasSubstr("the header is no JSON"));
}

TEST_F(SafetensorsTest, SaysWhichEntryIsWrong) {
  const auto error_of_entry = [&](const std::string& entry, std::size_t data) {
    return error_of(file_of(R"({"w":)" + entry + "}", data));
  };
  const auto names = [](const std::string& what) {
    return AllOf(HasSubstr("at byte 9: 'w': "), HasSubstr(what));
  };
  EXPECT_THAT(error_of_entry("7", 0), names("an entry has dtype, shape and data_offsets"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F32","shape":[1]})", 4), names("an entry has"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})", 4),
              names("an entry has"));
  EXPECT_THAT(error_of_entry(R"({"dtype":4,"shape":[1],"data_offsets":[0,4]})", 4),
              names("a dtype that is not a text"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F31","shape":[1],"data_offsets":[0,4]})", 4),
              names("the dtype 'F31' is not known"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})", 4),
              names("a shape that is not a list"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", 4),
              names("a dimension that is not a number"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})", 4),
              names("a dimension that is not a number"));
  EXPECT_THAT(
      error_of_entry(R"({"dtype":"F32","shape":[9223372036854775807,8],"data_offsets":[0,4]})", 4),
      names("more bytes than can be counted"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", 4),
              names("data_offsets are two numbers"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})", 4),
              names("an offset that is not a number"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", 4),
              names("data_offsets [4, 0] do not lie in the 4 bytes"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 4),
              names("data_offsets [0, 8] do not lie in the 4 bytes"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", 4),
              names("4 bytes of data, but dtype and shape call for 8"));
  EXPECT_THAT(error_of_entry(R"({"dtype":"F32","shape":[0],"data_offsets":[0,4]})", 4),
              names("4 bytes of data, but dtype and shape call for 0"));
}

TEST_F(SafetensorsTest, RefusesGapsOverlapsAndRepeatedNames) {
  const std::string u8 = R"({"dtype":"U8","shape":[2],"data_offsets":)";
  EXPECT_THAT(error_of(file_of(R"({"a":)" + u8 + R"([0,2]},"b":)" + u8 + "[3,5]}}", 5)),
              HasSubstr("'b': data begins at 3, but that of the tensor before ends at 2"));
  EXPECT_THAT(error_of(file_of(R"({"a":)" + u8 + R"([0,2]},"b":)" + u8 + "[1,3]}}", 3)),
              HasSubstr("'b': data begins at 1, but that of the tensor before ends at 2"));
  EXPECT_THAT(error_of(file_of(R"({"a":)" + u8 + R"([0,2]},"a":)" + u8 + "[2,4]}}", 4)),
              HasSubstr("'a': the header has this name twice"));
  EXPECT_THAT(error_of(file_of(R"({"a":)" + u8 + "[0,2]}}", 5)),
              HasSubstr("3 bytes at the end belong to no tensor"));
  EXPECT_THAT(error_of(file_of(R"({"__metadata__":{"k":7}})", 0)),
              HasSubstr("'k': metadata that is not a text"));
  EXPECT_THAT(error_of(file_of(R"({"__metadata__":7})", 0)), HasSubstr("is not an object"));
}

TEST_F(SafetensorsTest, MissingFilesAndFoldersAreNamed) {
  EXPECT_THROW(SafetensorsFile(directory_.path() / "missing"), KoloError);
  EXPECT_THROW(SafetensorsFile(directory_.path()), KoloError);
}

// Every damaged file is either read or refused. Sanitizers check the memory accesses.
TEST_F(SafetensorsTest, DamagedHeadersAreReadOrRefused) {
  const std::string good = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                           R"("b":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]}})";
  test::RandomText texts(3, {"{", "}", "[", "]", ":", ",", R"("dtype")", R"("shape")", "-1", "2",
                             "99999999999999999999", "null", R"("F32")", R"("__metadata__")"});
  int read = 0;
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    const auto file = directory_.write("random", file_of(texts.next({good}), 10));
    try {
      std::size_t bytes = 0;
      const SafetensorsFile opened(file);
      for (const StoredTensor& tensor : opened.tensors()) bytes += tensor.bytes.size();
      EXPECT_EQ(bytes, 10u);
      ++read;
    } catch (const KoloError& error) {
      EXPECT_EQ(error.error().code, ErrorCode::kData) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(read, 30);
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace kolo::trainer
