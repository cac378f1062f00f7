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
#include <fmt/ranges.h>

#include "tests/runtime/mismatch/mismatch_job.h"
#include "tests/support/sanitized.h"

namespace kolo::mismatch {
namespace {

using ::testing::HasSubstr;

enum class Splits { kEqual, kAscending, kDescending };

struct CollectiveTerms {
  const char* verb;
  OperationKind kind;
  bool has_root = false;
  bool has_two_forms = false;  ///< In place and out of place.
  bool is_grouped = false;
  Splits splits = Splits::kEqual;
  ReduceOp op = ReduceOp::kSum;
  Scales scales = {};
  std::size_t count = 12;
  DType dtype = DType::kFloat32;
  int root = 0;
  bool is_in_place = false;
  bool swaps_tensors = false;
  MemoryKind memory = MemoryKind::kHost;

  /// Not all ranks need something of all others.
  bool ends_early() const { return has_root; }
};

const std::vector<CollectiveTerms>& collectives() {
  using Kind = OperationKind;
  static const std::vector<CollectiveTerms> all = [] {
    std::vector<CollectiveTerms> plain = {
        {.verb = "all_reduce", .kind = Kind::kAllReduce, .has_two_forms = true},
        {.verb = "broadcast", .kind = Kind::kBroadcast, .has_root = true, .has_two_forms = true},
        {.verb = "reduce", .kind = Kind::kReduce, .has_root = true, .has_two_forms = true},
        {.verb = "reduce_scatter", .kind = Kind::kReduceScatter, .has_two_forms = true},
        {.verb = "all_gather", .kind = Kind::kAllGather, .has_two_forms = true},
        {.verb = "gather", .kind = Kind::kGather, .has_root = true},
        {.verb = "scatter", .kind = Kind::kScatter, .has_root = true},
        {.verb = "all_to_all", .kind = Kind::kAllToAll},
    };
    std::vector<CollectiveTerms> terms = plain;
    for (CollectiveTerms each : plain) {
      each.is_grouped = true;
      terms.push_back(each);
      each.is_grouped = false;
      each.splits = Splits::kAscending;
      if (has_parts(each.kind)) terms.push_back(each);
      each.splits = Splits::kEqual;
      each.op = ReduceOp::kPremulSum;
      if (reduces(each.kind)) terms.push_back(each);
    }
    return terms;
  }();
  return all;
}

std::string text_of(const CollectiveTerms& terms) {
  return fmt::format("{}{}{}{}", terms.is_grouped ? "grouped " : "", terms.verb,
                     terms.splits == Splits::kAscending ? " of uneven parts" : "",
                     terms.op == ReduceOp::kPremulSum ? " premul_sum" : "");
}

/// Of each rank's part, or of each pair's; empty if all have `count` elements.
std::vector<std::size_t> split(const CollectiveTerms& terms, std::size_t count, int ranks) {
  if (!has_parts(terms.kind) || terms.splits == Splits::kEqual) return {};
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> counts(terms.kind == OperationKind::kAllToAll ? n * n : n);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = count + 4 * (i % n);
  if (terms.splits == Splits::kDescending) std::ranges::reverse(counts);
  return counts;
}

std::vector<std::size_t> tensor_counts(const CollectiveTerms& terms) {
  if (!terms.is_grouped) return {terms.count};
  if (terms.swaps_tensors) return {8, terms.count};
  return {terms.count, 8};
}

/// There are too many parts to quote.
bool is_hashed(const CollectiveTerms& terms, int ranks) {
  return split(terms, terms.count, ranks).size() * tensor_counts(terms).size() > 16;
}

using CollectiveField = Field<CollectiveTerms>;

const std::vector<CollectiveField>& collective_fields() {
  using Terms = CollectiveTerms;
  static const std::vector<CollectiveField> all = {
      {"shape", [](Terms& terms) { terms.count = 24; },
       [](const Terms& terms, int) { return fmt::format("[{}", terms.count); }},
      {"dtype", [](Terms& terms) { terms.dtype = DType::kFloat64; },
       [](const Terms& terms, int) { return std::string(to_string(terms.dtype)); }},
      {"op", [](Terms& terms) { terms.op = ReduceOp::kAverage; },
       [](const Terms& terms, int) { return " " + std::string(to_string(terms.op)); }},
      {"scale before", [](Terms& terms) { terms.scales.before = 2; },
       [](const Terms& terms, int) {
         return terms.scales.before == 2 ? std::string("scaled by 2 before") : std::string();
       }},
      {"scale after", [](Terms& terms) { terms.scales.after = 0.5; },
       [](const Terms& terms, int) {
         return terms.scales.after == 0.5 ? std::string("scaled by 0.5 after") : std::string();
       }},
      {"root", [](Terms& terms) { terms.root = 2; },
       [](const Terms& terms, int) { return fmt::format(" rank {}", terms.root); }},
      {"splits",
       [](Terms& terms) {
         terms.splits = terms.splits == Splits::kEqual ? Splits::kAscending : Splits::kDescending;
       },
       [](const Terms& terms, int ranks) {
         const std::vector<std::size_t> counts = split(terms, terms.count, ranks);
         if (counts.empty()) return std::string(" each");
         if (is_hashed(terms, ranks)) return std::string("(hash ");
         return fmt::format("[{}]", fmt::join(counts, ", "));
       }},
      {"place", [](Terms& terms) { terms.is_in_place = true; },
       [](const Terms& terms, int) {
         return terms.is_in_place ? std::string() : std::string(" out of place");
       }},
      {"memory", [](Terms& terms) { terms.memory = MemoryKind::kDevice; },
       [](const Terms& terms, int) {
         return terms.memory == MemoryKind::kDevice ? std::string(" on device") : std::string();
       }},
      {"order of tensors", [](Terms& terms) { terms.swaps_tensors = true; },
       [](const Terms& terms, int) {
         return terms.swaps_tensors ? std::string("[8] + [12]") : std::string("[12] + [8]");
       }},
      {"number of tensors", [](Terms& terms) { terms.is_grouped = !terms.is_grouped; },
       [](const Terms& terms, int ranks) {
         if (!terms.is_grouped) return std::string();
         return std::string(is_hashed(terms, ranks) ? " in 2 tensors" : "] + [");
       }},
      {"operation",
       [](Terms& terms) {
         const bool is_it = terms.kind == OperationKind::kAllReduce;
         terms = collectives()[is_it ? 1 : 0];
       },
       [](const Terms& terms, int) { return std::string(terms.verb); }},
  };
  return all;
}

/// Why calls with such terms have no such field, so that ranks cannot disagree about it; or empty.
std::string_view exemption(const CollectiveTerms& terms, std::string_view field) {
  if (field == "op" || field == "scale before" || field == "scale after") {
    if (!reduces(terms.kind)) return "it combines nothing";
    if (field == "scale before" && terms.op == ReduceOp::kPremulSum) {
      return "each rank has its own scale";
    }
  }
  if (field == "root" && !terms.has_root) return "it has no root";
  if (field == "splits" && !has_parts(terms.kind)) return "it has no parts";
  if (field == "place" && !terms.has_two_forms) return "it has one form only";
  if (field == "order of tensors" && !terms.is_grouped) return "it takes one tensor";
  return {};
}

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
    const Reduction reduction(terms.op, terms.scales);
    const double* const input = terms.is_in_place ? nullptr : input_.data();
    const auto result = [&](std::size_t count) {
      return BufferView{result_.data(), count, terms.dtype, terms.memory};
    };
    switch (terms.kind) {
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
        return calls_.all_to_all(name, input_.data(), result(received), counts);
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
    return calls_.grouped(terms.kind, name,
                          {.dtype = terms.dtype, .each = tensors, .memory = terms.memory},
                          terms.has_root ? terms.root : 0,
                          reduces(terms.kind) ? Reduction(terms.op, terms.scales) : ReduceOp::kSum);
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
    EXPECT_TRUE(is_known && terms.front().ends_early());
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
