// Tests collectives about which ranks disagree, in every field and in every pair of fields.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tests/runtime/mismatch/collective_terms.h"
#include "tests/runtime/mismatch/mismatch_job.h"
#include "tests/support/calls/sized_tensor.h"
#include "tests/support/sanitized.h"

namespace kolo::mismatch {
namespace {

using ::testing::HasSubstr;

/// The call of one rank, and its buffers.
class CollectiveCall : public std::enable_shared_from_this<CollectiveCall> {
 public:
  CollectiveCall(const std::string& name, const CollectiveTerms& terms, int rank, int ranks)
      : calls_(pool_, rank, ranks), operation_(make(name, terms, ranks)) {}

  static Called submit(Engine& engine, const std::string& name, const CollectiveTerms& terms,
                       int rank, int ranks) {
    return std::make_shared<CollectiveCall>(name, terms, rank, ranks)->submit(engine);
  }
  Called submit(Engine& engine) {
    engine.submit(operation_);
    return called(operation_->ticket, shared_from_this());
  }

  /// Sets all float32 elements that this rank contributes to `value`.
  void contribute(float value) {
    for (std::vector<double>* const buffer : {&input_, &result_}) {
      auto* const elements = reinterpret_cast<float*>(buffer->data());
      std::fill_n(elements, 2 * buffer->size(), value);
    }
  }
  float first_result() const { return *reinterpret_cast<const float*>(result_.data()); }

  std::string signature() const { return operation_->signature(); }

 private:
  /// Makes an operation on one or several tensors, each with separate elements of the buffers.
  std::shared_ptr<Operation> make(const std::string& name, const CollectiveTerms& terms,
                                  int ranks) {
    if (terms.kind == OperationKind::kBarrier) return calls_.plain(terms.kind);
    const std::vector<std::size_t> counts = tensor_counts(terms);
    const test::Caller caller{terms.kind, calls_.rank(), ranks};
    std::vector<std::vector<std::size_t>> splits;
    for (const std::size_t count : counts) splits.push_back(split(terms, count, ranks));
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t place = i * (kNumbers / 2);
      tensors.push_back(caller.tensor(counts[i], splits[i], input_.data() + place,
                                      result_.data() + place, terms.dtype, terms.is_in_place,
                                      terms.memory));
    }
    return calls_.make(terms.kind, name, tensors, terms.has_root() ? terms.root : 0,
                       reduces(terms.kind) ? terms.reduction() : ReduceOp::kSum);
  }

  /// More elements than any of these operations has.
  static constexpr std::size_t kNumbers = 2048;

  std::vector<double> input_ = std::vector<double>(kNumbers), result_ = input_;
  OperationPool pool_;
  const OperationCalls calls_;
  const std::shared_ptr<Operation> operation_;
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

/// Checks that results have the values of this use, not of an earlier one.
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
  const float expected = reduces(terms.kind) ? value * static_cast<float>(members.size()) : value;
  for (int rank = 0; rank < members.size(); ++rank) {
    if (is_to_root(terms.kind) && rank != terms.root) continue;
    EXPECT_EQ(each[static_cast<std::size_t>(rank)]->first_result(), expected) << "rank " << rank;
  }
}

constexpr int kMostUses = 100;

/// Expects that every rank gets the error once. In a use of a known name, a rank that only sends or
/// only receives may end before others begin. A later use then gets the error.
void expect_same_error(MismatchJob& job, const Members& members, const std::string& name,
                       const std::vector<CollectiveTerms>& terms, bool is_known) {
  std::vector<Called> calls = call_all(members, name, terms);
  job.finish(calls);
  std::vector<std::string> texts;
  bool is_late = false;
  for (int rank = 0; rank < members.size(); ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    texts.push_back(signature(name, terms[i], members.size()));
    // The error may come only after further uses have ended.
    for (int uses = 0; calls[i].error().empty() && uses < kMostUses; ++uses) {
      is_late = true;
      texts.back().clear();
      calls[i] = CollectiveCall::submit(members.engine(rank), name, terms[i], rank, members.size());
      job.finish({calls[i]});
    }
  }
  if (is_late) {
    EXPECT_TRUE(is_known && std::ranges::any_of(terms, &CollectiveTerms::has_root));
    MismatchJob::expect_late_error(members, calls, texts);
  } else {
    MismatchJob::expect_disagreement(members, calls, texts);
  }
}

/// Tests a mismatch about a new name, then one about a name that all ranks have used. After each,
/// all ranks can continue.
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
        if (test::kSanitized && k > i) continue;  // takes long
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
      MismatchJob job(which);  // rejected buckets keep their memory
      // Each field by itself is tried in both; two fields are in one of them, in turns.
      std::size_t pairs = 0;
      for_each_pair(base, [&](const CollectiveField& of_1, const CollectiveField& of_2) {
        if (&of_1 != &of_2 && pairs++ % 2 != which) return;
        disagree(job, *job.both()[which], base, of_1, of_2);
      });
      if (HasFailure()) return;
    }
  }
}

// Every operation meets every other one, except a barrier, which has a name of its own.
TEST_F(CollectiveMismatches, OfOperationsAreAllSeen) {
  const std::vector<CollectiveTerms> all = plain_collectives();
  for (const std::size_t which : std::initializer_list<std::size_t>{0, 1}) {
    MismatchJob job(which);
    const Members& members = *job.both()[which];
    for (const CollectiveTerms& base : all) {
      for (const CollectiveTerms& other : all) {
        if (base.kind == other.kind) continue;
        const std::string pair =
            fmt::format("{} and {}", call_name(base.kind), call_name(other.kind));
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

// Differences between calls are visible in their texts, which errors quote.
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

// One rank calls in the job and the others in the group. All wait until the error, which names the
// missing ranks. These get it when they call.
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
