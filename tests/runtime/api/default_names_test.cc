#include "runtime/calls/operation.h"

#include <gmock/gmock.h>

#include "runtime/calls/operation_calls.h"

namespace kolo {
namespace {

TEST(Operation, WithoutANameIsNamedByItsArguments) {
  Operation operation{.kind = OperationKind::kAllReduce, .tensors = {{.count = 10}}};
  EXPECT_EQ(operation.default_name(), "all_reduce float32 [10] sum");
  const std::vector<std::function<void()>> changes = {
      [&] { operation.tensors[0].count = 11; },
      [&] { operation.dtype = DType::kBFloat16; },
      [&] { operation.memory = MemoryKind::kDevice; },
      [&] { operation.op = ReduceOp::kMax; },
      [&] { operation.scales.after = 0.5; },
      [&] { operation.wire = DType::kBFloat16; },
      [&] { operation.kind = OperationKind::kReduce; },
      [&] { operation.root = 3; },
      [&] {
        operation.tensors = {{.count = 5}, {.count = 6}};
      },
      [&] { operation.kind = OperationKind::kAllGather; },
      [&] {
        operation.counts = {4, 7, 1, 2};
      },
      [&] { operation.out_of_place = true; },
  };
  for (const auto& change : changes) {
    change();
    EXPECT_EQ(operation.default_name(), operation.arguments());
  }
}

TEST(DefaultNames, TellManyTensorsApartByAHash) {
  Operation many{.kind = OperationKind::kAllReduce,
                 .tensors = std::vector<TensorBuffers>(30, {.count = 1})};
  EXPECT_THAT(many.default_name(), testing::StartsWith("all_reduce float32 in 30 tensors (hash "));
  const std::string others = many.default_name();
  many.tensors.back().count = 2;
  EXPECT_NE(many.default_name(), others);
  Operation parts{.kind = OperationKind::kAllGather,
                  .tensors = std::vector<TensorBuffers>(9),
                  .counts = std::vector<std::size_t>(18, 1)};
  EXPECT_THAT(parts.default_name(), testing::HasSubstr("float32 in 9 tensors of 2 parts (hash "));
}

TEST(OperationPool, KeepsTheDefaultNameForTheNextCall) {
  OperationPool pool;
  const auto take = [&] {
    auto operation = pool.take(OperationKind::kAllReduce, "");
    operation->tensors.push_back({.count = 10});
    return operation;
  };
  auto first = take();
  const char* const text = first->default_name().data();
  first->ticket->complete();
  pool.give_back(std::move(first));
  EXPECT_EQ(take()->default_name().data(), text);
}

}  // namespace
}  // namespace kolo
