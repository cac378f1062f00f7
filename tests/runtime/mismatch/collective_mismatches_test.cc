// Collectives about which ranks disagree: every field, and every pair of fields.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tests/runtime/mismatch/collective_terms.h"
#include "tests/runtime/mismatch/mismatch_job.h"
#include "tests/support/sanitized.h"

namespace kolo::mismatch {
namespace {

using ::testing::HasSubstr;

/// The call of one rank, and its buffers.
class CollectiveCall : public std::enable_shared_from_this<CollectiveCall> {
 public:
  CollectiveCall(const std::string& name, const CollectiveTerms& terms, int rank, int ranks)
      : calls_(pool_, rank, ranks), rank_(static_cast<std::size_t>(rank)) {
    operation_ = terms.is_grouped ? grouped(name, terms, ranks) : plain(name, terms, ranks);
  }

  static Called submit(Engine& engine, const std::string& name, const CollectiveTerms& terms,
                       int rank, int ranks) {
    return std::make_shared<CollectiveCall>(name, terms, rank, ranks)->submit(engine);
  }
  Called submit(Engine& engine) {
    engine.submit(operation_);
    return called(operation_->ticket, shared_from_this());
  }

  /// All float32 elements that this rank contributes are `value`.
  void contribute(float value) {
    for (std::vector<double>* const buffer : {&input_, &result_}) {
      auto* const elements = reinterpret_cast<float*>(buffer->data());
      std::fill_n(elements, 2 * buffer->size(), value);
    }
  }
  float first_result() const { return *reinterpret_cast<const float*>(result_.data()); }

  std::string signature() const { return operation_->signature(); }

 private:
  using New = OperationCalls::New;
  New plain(const std::string& name, const CollectiveTerms& terms, int ranks) {
    using Kind = OperationKind;
    const auto n = static_cast<std::size_t>(ranks);
    const std::vector<std::size_t> counts = split(terms, terms.count, ranks);
    const std::size_t mine = counts.empty() ? terms.count : counts[rank_];
    const std::size_t all = counts.empty()
                                ? terms.count * n
                                : std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const Reduction reduction = terms.reduction();
    const double* const input = terms.is_in_place ? nullptr : input_.data();
    const auto result = [&](std::size_t count) {
      return BufferView{result_.data(), count, terms.dtype, terms.memory};
    };
    switch (terms.kind) {
      case Kind::kBarrier:
        return calls_.plain(terms.kind);
      case Kind::kBroadcast:
        return terms.is_in_place ? calls_.broadcast(name, result(mine), terms.root)
                                 : calls_.broadcast(name, input, result(mine), terms.root);
      case Kind::kReduce:
        return calls_.reduce(name, input, result(mine), terms.root, reduction);
      case Kind::kReduceScatter:
        return calls_.reduce_scatter(name, input, result(terms.is_in_place ? all : mine), reduction,
                                     counts);
      case Kind::kAllGather:
        return calls_.all_gather(name, input, result(all), counts);
      case Kind::kGather:
        return calls_.gather(name, {input_.data(), mine, terms.dtype, terms.memory}, result_.data(),
                             terms.root, counts);
      case Kind::kScatter:
        return calls_.scatter(name, input_.data(), result(mine), terms.root, counts);
      case Kind::kAllToAll: {
        std::size_t received = counts.empty() ? all : 0;
        for (std::size_t i = rank_; i < counts.size(); i += n) received += counts[i];
        return calls_.all_to_all(name, input, result(received), counts);
      }
      default:
        return terms.is_in_place ? calls_.all_reduce(name, result(mine), reduction)
                                 : calls_.all_reduce(name, input, result(mine), reduction);
    }
  }

  New grouped(const std::string& name, const CollectiveTerms& terms, int ranks) {
    const std::vector<std::size_t> counts = tensor_counts(terms);
    std::vector<std::vector<std::size_t>> splits;
    for (const std::size_t count : counts) splits.push_back(split(terms, count, ranks));
    std::vector<TensorBuffers> tensors;
    const bool has_input = !terms.is_in_place || !terms.has_two_forms;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t place = i * (kNumbers / 2);
      tensors.push_back({.input = has_input ? input_.data() + place : nullptr,
                         .result = result_.data() + place,
                         .count = counts[i],
                         .counts = splits[i]});
    }
    return calls_.grouped(
        terms.kind, name, {.dtype = terms.dtype, .each = tensors, .memory = terms.memory},
        terms.has_root ? terms.root : 0, reduces(terms.kind) ? terms.reduction() : ReduceOp::kSum);
  }

  /// More than any of these operations has.
  static constexpr std::size_t kNumbers = 2048;

  std::vector<double> input_ = std::vector<double>(kNumbers), result_ = input_;
  OperationPool pool_;
  OperationCalls calls_;
  const std::size_t rank_;
  New operation_;
};

std::string signature(const std::string& name, const CollectiveTerms& terms, int ranks) {
  return CollectiveCall(name, terms, 0, ranks).signature();
}

std::vector<Called> call_all(const Members& members, const std::string& name,
                             const std::vector<CollectiveTerms>& terms) {
  std::vector<Called> calls;
  for (int rank = 0; rank < members.size(); ++rank) {
    calls.push_back(CollectiveCall::submit(
        members.engine(rank), name, terms[static_cast<std::size_t>(rank)], rank, members.size()));
  }
  return calls;
}

/// With values of this use, and not of one before.
void expect_all_right(MismatchJob& job, const Members& members, const std::string& name,
                      const CollectiveTerms& terms) {
  static float value = 0;
  value = value == 1000 ? 1 : value + 1;
  std::vector<std::shared_ptr<CollectiveCall>> each;
  std::vector<Called> calls;
  for (int rank = 0; rank < members.size(); ++rank) {
    each.push_back(std::make_shared<CollectiveCall>(name, terms, rank, members.size()));
    each.back()->contribute(value);
    calls.push_back(each.back()->submit(members.engine(rank)));
  }
  job.expect_success(calls);
  const bool is_to_root =
      terms.kind == OperationKind::kReduce || terms.kind == OperationKind::kGather;
  const float expected = reduces(terms.kind) ? value * static_cast<float>(members.size()) : value;
  for (int rank = 0; rank < members.size(); ++rank) {
    if (is_to_root && rank != terms.root) continue;
    EXPECT_EQ(each[static_cast<std::size_t>(rank)]->first_result(), expected) << "rank " << rank;
  }
}

constexpr int kMostUses = 100;

/// Every rank gets the error once. Uses of a known name in which a rank only gives, or only takes,
/// may end there before others begin: then a later use gets it.
void expect_same_error(MismatchJob& job, const Members& members, const std::string& name,
                       const std::vector<CollectiveTerms>& terms, bool is_known) {
  std::vector<Called> calls = call_all(members, name, terms);
  job.finish(calls);
  std::vector<std::string> texts;
  bool is_late = false;
  for (int rank = 0; rank < members.size(); ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    texts.push_back(signature(name, terms[i], members.size()));
    // News of the error may come only when further uses are over.
    for (int uses = 0; calls[i].error().empty() && uses < kMostUses; ++uses) {
      is_late = true;
      texts.back().clear();
      calls[i] = CollectiveCall::submit(members.engine(rank), name, terms[i], rank, members.size());
      job.finish({calls[i]});
    }
  }
  if (is_late) {
    EXPECT_TRUE(is_known && std::ranges::any_of(terms, &CollectiveTerms::ends_early));
    MismatchJob::expect_late_error(members, calls, texts);
  } else {
    MismatchJob::expect_disagreement(members, calls, texts);
  }
}

/// The name is new, then the mismatch is about one that all have used. Each time all can go on.
void disagree(MismatchJob& job, const Members& members, const CollectiveTerms& base,
              const CollectiveField& of_1, const CollectiveField& of_2) {
  const auto terms = disagreement(base, members.size(), of_1, of_2);
  const std::string name = fmt::format("{} and {}", of_1.name, of_2.name);
  for (const bool is_known : {false, true}) {
    expect_same_error(job, members, name, terms, is_known);
    job.expect_sums_everywhere();
    expect_all_right(job, members, name, base);
  }
}

class CollectiveMismatches : public ::testing::Test {
 protected:
  const CapturedLog log_;

  /// Calls `check` with every pair of fields that calls with these terms have.
  template <typename Check>
  static void for_each_pair(const CollectiveTerms& base, const Check& check) {
    const auto& fields = collective_fields();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      for (std::size_t k = i; k < fields.size(); ++k) {
        if (test::kSanitized && k > i) continue;  // It takes long.
        if (!exemption(base, fields[i].name).empty()) continue;
        if (!exemption(base, fields[k].name).empty()) continue;
        SCOPED_TRACE(text_of(base) + ": " + fields[i].name + " and " + fields[k].name);
        check(fields[i], fields[k]);
        if (HasFailure()) return;
      }
    }
  }
};

TEST_F(CollectiveMismatches, AreTheSameErrorOnAllRanksAndLeaveTheRestUsable) {
  for (const CollectiveTerms& base : collectives()) {
    for (const std::size_t which : std::initializer_list<std::size_t>{0, 1}) {
      MismatchJob job(which);  // Buckets of which ranks did different parts keep their memory.
      for_each_pair(base, [&](const CollectiveField& of_1, const CollectiveField& of_2) {
        disagree(job, *job.both()[which], base, of_1, of_2);
      });
      if (HasFailure()) return;
    }
  }
}

// Any operation in place of any other one. A barrier has a name that no other operation has.
TEST_F(CollectiveMismatches, OfOperationsAreAllSeen) {
  const std::vector<CollectiveTerms> all = plain_collectives();
  for (const std::size_t which : std::initializer_list<std::size_t>{0, 1}) {
    MismatchJob job(which);
    const Members& members = *job.both()[which];
    for (const CollectiveTerms& base : all) {
      for (const CollectiveTerms& other : all) {
        if (base.kind == other.kind) continue;
        const std::string pair = fmt::format("{} and {}", base.verb, other.verb);
        SCOPED_TRACE(pair);
        std::vector<CollectiveTerms> terms(static_cast<std::size_t>(members.size()), base);
        terms[1] = other;
        for (const bool is_known : {false, true}) {
          expect_same_error(job, members, pair, terms, is_known);
          job.expect_sums_everywhere();
          expect_all_right(job, members, pair, base);
        }
        if (HasFailure()) return;
      }
    }
  }
}

// What calls differ in shows in their texts, which errors quote.
TEST_F(CollectiveMismatches, QuoteBothValues) {
  for (const CollectiveTerms& base : collectives()) {
    for (const CollectiveField& field : collective_fields()) {
      if (!exemption(base, field.name).empty()) continue;
      SCOPED_TRACE(text_of(base) + ": " + field.name);
      CollectiveTerms other = base;
      field.change(other);
      for (const CollectiveTerms& terms : {base, other}) {
        EXPECT_THAT(signature("x", terms, 3), HasSubstr(field.value(terms, 3)));
      }
      EXPECT_NE(signature("x", base, 3), signature("x", other, 3));
    }
  }
}

TEST_F(CollectiveMismatches, AreNotWhatIsExempt) {
  MismatchJob job(2);
  for (const Members* const members : job.both()) {
    for (const CollectiveTerms& base : collectives()) {
      for (const CollectiveField& field : collective_fields()) {
        const std::string_view reason = exemption(base, field.name);
        if (reason.empty()) continue;
        SCOPED_TRACE(fmt::format("{}: {}: {}", text_of(base), field.name, reason));
        job.expect_success(
            call_all(*members, "x", disagreement(base, members->size(), field, field)));
      }
    }
  }
}

// One rank calls in the job and the others in the group: these wait in vain, and the members of
// each get the error that names those who did not come. These get it when they come.
TEST_F(CollectiveMismatches, InTheGroupAreStallsOfBoth) {
  MismatchJob job(3);
  const Members& all = *job.both()[0];
  const Members& some = *job.both()[1];
  for (const CollectiveTerms& base : collectives()) {
    SCOPED_TRACE(text_of(base));
    const auto call = [&](const Members& members, const std::vector<int>& ranks) {
      std::vector<Called> calls;
      for (const int rank : ranks) {
        calls.push_back(
            CollectiveCall::submit(members.engine(rank), "x", base, rank, members.size()));
      }
      return calls;
    };
    std::vector<Called> in_job = call(all, {0, 1}), in_group = call(some, {0, 2});
    job.finish(in_job);
    job.finish(in_group);
    std::ranges::copy(call(all, {2, 3}), std::back_inserter(in_job));
    in_group.insert(in_group.begin() + 1, call(some, {1}).front());
    job.finish(in_job);
    job.finish(in_group);
    const std::string text = signature("x", base, all.size());
    MismatchJob::expect_stall(all, in_job, {text, text, "", ""});
    const std::string in_group_text = signature("x", base, some.size());
    MismatchJob::expect_stall(some, in_group, {in_group_text, "", in_group_text});
    job.expect_sums_everywhere();
    for (const Members* const members : job.both()) expect_all_right(job, *members, "x", base);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace kolo::mismatch
