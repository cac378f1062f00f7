#include "runtime/calls/stand_in.h"

#include <gtest/gtest.h>

#include <span>

#include "tests/support/calls/sized_tensor.h"

namespace kolo {
namespace {

// The terms that other ranks get must contain everything in the signature.
TEST(OperationTerms, MakeTheSameSignature) {
  std::vector<float> data(12);
  const std::vector<TensorBuffers> in_place = test::in_place({data.data(), 4});
  const std::vector<TensorBuffers> apart{{data.data() + 4, data.data(), 4}};
  const Operation operations[] = {
      {.kind = OperationKind::kAllReduce, .name = "x", .tensors = in_place, .op = ReduceOp::kMax},
      {.kind = OperationKind::kAllReduce,
       .name = "scaled",
       .tensors = apart,
       .out_of_place = true,
       .op = ReduceOp::kPremulSum,
       .scales = {.before = 3, .after = 0.5}},
      {.kind = OperationKind::kReduce,
       .name = "complex",
       .dtype = DType::kComplex64,
       .tensors = {{nullptr, data.data(), 2}},
       .root = 2},
      {.kind = OperationKind::kReduceScatter,
       .name = "parts",
       .tensors = {{nullptr, data.data()}},
       .counts = {4, 0, 8}},
      {.kind = OperationKind::kScatter,
       .name = "equal parts",
       .tensors = apart,
       .out_of_place = true,
       .root = 1},
      {.kind = OperationKind::kBroadcast,
       .name = "out of place",
       .tensors = in_place,
       .out_of_place = true,
       .root = 2},
      {.kind = OperationKind::kAllReduce,
       .name = "several",
       .tensors = {{data.data(), data.data() + 6, 5}, {nullptr, nullptr, 4}},
       .out_of_place = true},
      {.kind = OperationKind::kReduceScatter,
       .name = "parts of several",
       .dtype = DType::kComplex64,
       .tensors = {{nullptr, data.data(), 1}, {nullptr, data.data(), 2}}},
      {.kind = OperationKind::kReduceScatter,
       .name = "uneven parts of several",
       .dtype = DType::kComplex64,
       .tensors = {{nullptr, data.data()}, {nullptr, data.data()}},
       .counts = {3, 0, 1, 2, 2, 2}},
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
      .dtype = DType::kInt64,
      .tensors = {{.input = mine.data(), .result = all.data(), .count = mine.size()}},
      .out_of_place = true,
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
