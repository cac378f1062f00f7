// Tests gradient sets, with codecs, that differ between ranks in every field and pair of fields.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "compression/compression_spec.h"
#include "runtime/gradients/gradient_compression.h"
#include "tests/runtime/mismatch/mismatch_job.h"

namespace kolo::mismatch {
namespace {

struct SetTerms {
  std::vector<GradientSpec> gradients = {{.name = "weights", .shape = {64, 128}},
                                         {.name = "bias", .shape = {32}}};
  GradientOptions options = {};
  std::string rules = "topk(0.05)";
  bool is_in_user_memory = false;
};

struct SetField {
  const char* name;
  void (*change)(SetTerms& terms);
  std::string before, after;  ///< The values that the error quotes.
};

const std::vector<SetField>& set_fields() {
  using Terms = SetTerms;
  static const std::vector<SetField> all = {
      {"number", [](Terms& terms) { terms.gradients.pop_back(); }, "2 gradients", "1 gradients"},
      {"op", [](Terms& terms) { terms.options.op = ReduceOp::kSum; }, ", average,", ", sum,"},
      {"wire", [](Terms& terms) { terms.options.wire_dtype = DType::kBFloat16; }, "wire as it is",
       "wire bfloat16"},
      {"divisor",
       [](Terms& terms) {
         terms.options.divisor = Divisor::kContributingRanks;
         terms.rules = "none";  // sparse gradients have no other divisor
       },
       ", average,", ", average over contributing_ranks,"},
      {"name", [](Terms& terms) { terms.gradients[0].name = "others"; }, "'weights'", "'others'"},
      {"shape",
       [](Terms& terms) {
         terms.gradients[0].shape = {128, 64};
       },
       "[64, 128]", "[128, 64]"},
      {"dtype", [](Terms& terms) { terms.gradients[0].dtype = DType::kFloat64; }, "float32 [64",
       "float64 [64"},
      {"memory", [](Terms& terms) { terms.is_in_user_memory = true; }, "in arena memory",
       "in user memory"},
      {"codec", [](Terms& terms) { terms.rules = "fp16"; }, ", topk(0.05)", ", wire float16"},
      {"setting of the codec", [](Terms& terms) { terms.rules = "topk(0.1)"; }, ", topk(0.05)",
       ", topk(0.1)"},
      {"no codec", [](Terms& terms) { terms.rules = "none"; }, ", topk(0.05)", "memory;"},
      {"wire of one", [](Terms& terms) { terms.gradients[1].wire_dtype = DType::kFloat16; },
       "'bias': float32 [32] in arena memory",
       "'bias': float32 [32] in arena memory, wire float16"},
      {"order", [](Terms& terms) { std::swap(terms.gradients[0], terms.gradients[1]); },
       "'weights'", "'bias'"},
  };
  return all;
}

/// One member's set, and its memory.
struct MemberSet {
  std::vector<std::vector<double>> memory = {};
  std::shared_ptr<GradientSetState> group = {};

  explicit MemberSet(SetTerms terms) {
    for (GradientSpec& gradient : terms.gradients) {
      memory.emplace_back(gradient.count());
      if (terms.is_in_user_memory) gradient.data = memory.back().data();
    }
    resolve_compression(terms.gradients, CompressionRules::parse(terms.rules));
    group = std::make_shared<GradientSetState>("model", terms.gradients, terms.options);
  }
};

using Sets = std::vector<std::shared_ptr<MemberSet>>;

std::vector<Called> register_all(const Members& members, const Sets& sets) {
  std::vector<Called> calls;
  for (int rank = 0; rank < members.size(); ++rank) {
    const auto& set = sets[static_cast<std::size_t>(rank)];
    members.engine(rank).submit(set->group);
    TicketState& ticket = set->group->registration();
    ticket.event();
    calls.push_back({.done = [&ticket] { return ticket.done(); },
                     .error = [&ticket, set] { return error_of(ticket); }});
  }
  return calls;
}

/// Returns the first lines in which these texts differ; "nothing more" for a text without such a
/// line.
std::vector<std::string> first_difference(const Sets& sets) {
  std::vector<std::vector<std::string>> lines;
  std::size_t longest = 0;
  for (const auto& set : sets) {
    std::istringstream text(set->group->describe());
    lines.emplace_back();
    for (std::string line; std::getline(text, line);) lines.back().push_back(line);
    longest = std::max(longest, lines.back().size());
  }
  for (std::size_t i = 0; i < longest; ++i) {
    std::vector<std::string> each;
    for (const auto& of : lines) each.push_back(i < of.size() ? of[i] : "nothing more");
    if (std::ranges::adjacent_find(each, std::not_equal_to()) != each.end()) return each;
  }
  return {};
}

/// Registers the set on all members, and checks the average of one iteration.
void expect_an_iteration(MismatchJob& job, const Members& members) {
  Sets sets;
  for (int rank = 0; rank < members.size(); ++rank) {
    sets.push_back(std::make_shared<MemberSet>(SetTerms{.rules = "none"}));
  }
  job.expect_success(register_all(members, sets));
  for (int rank = 0; rank < members.size(); ++rank) {
    GradientSetState& group = *sets[static_cast<std::size_t>(rank)]->group;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const BufferView& view = group.view(i);
      std::fill_n(static_cast<float*>(view.data), view.count, static_cast<float>(rank));
      test::mark(members.engine(rank), group, i);
    }
  }
  job.job().run_until([&] {
    return std::ranges::all_of(sets,
                               [](const auto& s) { return s->group->iterations().is_over(); });
  });
  for (const auto& set : sets) {
    EXPECT_TRUE(set->group->wait(std::chrono::milliseconds(1)));
    const auto average = static_cast<float>(members.size() - 1) / 2;
    EXPECT_NEAR(*static_cast<const float*>(set->group->view(1).data), average, 1e-6F);
  }
}

TEST(GradientMismatches, AreTheSameErrorOnAllRanksAndLeaveTheRestUsable) {
  const CapturedLog log;
  for (const std::size_t which : std::initializer_list<std::size_t>{0, 1}) {
    MismatchJob job(which);
    const Members& members = *job.both()[which];
    for (std::size_t i = 0; i < set_fields().size(); ++i) {
      for (std::size_t k = i; k < set_fields().size(); ++k) {
        const SetField& of_1 = set_fields()[i];
        const SetField& of_2 = set_fields()[k];
        SCOPED_TRACE(std::string(of_1.name) + " and " + of_2.name);
        std::vector<SetTerms> terms(static_cast<std::size_t>(members.size()));
        of_1.change(terms[1]);
        if (i != k) of_2.change(terms[2]);
        Sets sets;
        for (const SetTerms& each : terms) sets.push_back(std::make_shared<MemberSet>(each));
        const std::vector<Called> calls = register_all(members, sets);
        job.finish(calls);
        const std::string error =
            MismatchJob::expect_disagreement(members, calls, first_difference(sets));
        if (i == k) {
          EXPECT_THAT(error + ";", testing::HasSubstr(of_1.before));
          EXPECT_THAT(error + ";", testing::HasSubstr(of_1.after));
        }
      }
      job.expect_sums_everywhere();
      if (testing::Test::HasFailure()) break;
    }
    expect_an_iteration(job, members);
  }
}

}  // namespace
}  // namespace kolo::mismatch
