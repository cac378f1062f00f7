#include "runtime/calls/stand_in.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kolo {
namespace {

// What other ranks are told of an operation is all that its signature has.
TEST(OperationTerms, MakeTheSameSignature) {
  std::vector<float> data(12);
  const BufferView buffer{data.data(), 4, DType::kFloat32};
  const Operation operations[] = {
      {.kind = OperationKind::kAllReduce, .name = "x", .buffer = buffer, .op = ReduceOp::kMax},
      {.kind = OperationKind::kAllReduce,
       .name = "scaled",
       .buffer = buffer,
       .input = data.data() + 4,
       .out_of_place = true,
       .op = ReduceOp::kPremulSum,
       .scales = {.before = 3, .after = 0.5}},
      {.kind = OperationKind::kReduce,
       .name = "complex",
       .buffer = {data.data(), 2, DType::kComplex64},
       .root = 2},
      {.kind = OperationKind::kReduceScatter,
       .name = "parts",
       .buffer = buffer,
       .counts = {4, 0, 8}},
      {.kind = OperationKind::kScatter,
       .name = "equal parts",
       .buffer = buffer,
       .input = data.data() + 4,
       .out_of_place = true,
       .counts = {4},
       .root = 1},
      {.kind = OperationKind::kBroadcast,
       .name = "out of place",
       .buffer = buffer,
       .out_of_place = true,
       .root = 2},
      {.kind = OperationKind::kAllReduce,
       .name = "grouped",
       .buffer = {nullptr, 9, DType::kFloat32},
       .out_of_place = true,
       .tensors = {{data.data(), data.data() + 6, 5}, {nullptr, nullptr, 4}}},
      {.kind = OperationKind::kReduceScatter,
       .name = "grouped parts",
       .buffer = {nullptr, 3, DType::kComplex64},
       .counts = {3},
       .tensors = {{nullptr, data.data(), 1}, {nullptr, data.data(), 2}}},
      {.kind = OperationKind::kReduceScatter,
       .name = "grouped uneven parts",
       .buffer = {nullptr, 0, DType::kComplex64},
       .counts = {3, 0, 1, 2, 2, 2},
       .tensors = {{nullptr, data.data()}, {nullptr, data.data()}}},
      {.kind = OperationKind::kBarrier, .name = "barrier"}};
  for (const Operation& operation : operations) {
    const std::vector<std::byte> bytes =
        to_bytes(OperationTerms{.name = operation.name, .shape = OperationShape::of(operation)});
    const auto terms = operation_terms_from(bytes);
    ASSERT_TRUE(terms) << operation.name;
    EXPECT_EQ(obstacle_to(terms->shape, 0), "") << operation.name;
    EXPECT_EQ(make_stand_in(*terms, 3)->signature(), operation.signature());
    EXPECT_TRUE(OperationShape::of(operation).fits(*make_stand_in(*terms, 3))) << operation.name;
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(operation_terms_from(std::span(bytes).first(length)));
    }
  }
}

TEST(OperationTerms, KeepTheCallThatTheyBegin) {
  std::vector<std::int64_t> mine(3), all(9);
  const Operation operation{
      .kind = OperationKind::kAllGather,
      .name = "rows",
      .buffer = {all.data(), all.size(), DType::kInt64},
      .input = mine.data(),
      .out_of_place = true,
      .counts = {mine.size()},
      .rows = RowCall{.tables = {{.height = 7, .width = 2, .dtype = DType::kFloat16},
                                 {.height = 3, .width = 5, .dtype = DType::kFloat16}},
                      .options = {.op = ReduceOp::kAverage,
                                  .exchange = RowForm::kTable,
                                  .scales = {.before = 2, .after = 0.5}}}};
  const auto terms = operation_terms_from(to_bytes(OperationTerms{
      .name = "rows", .space = NameSpace::kStep, .shape = OperationShape::of(operation)}));
  ASSERT_TRUE(terms);
  EXPECT_EQ(terms->space, NameSpace::kStep);
  EXPECT_TRUE(terms->shape.fits(operation));
  EXPECT_EQ(obstacle_to(terms->shape, 0), "");
}

}  // namespace
}  // namespace kolo
