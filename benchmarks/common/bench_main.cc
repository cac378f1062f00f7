// kolo-bench: measures what Kolo's collectives cost, beside other systems in the same run.

#include <deque>
#include <string>

#include <CLI/CLI.hpp>

#include "benchmarks/agreement/agreement_command.h"
#include "benchmarks/codec/codec_bench.h"
#include "benchmarks/codec/error_command.h"
#include "benchmarks/collective/choice_command.h"
#include "benchmarks/collective/collective_command.h"
#include "benchmarks/overlap/overlap_command.h"
#include "runtime/api/version.h"
#include "runtime/tools/command_line.h"

namespace kolo::bench {
namespace {

int main(int argc, char** argv) {
  CLI::App app("Measures Kolo's collectives, beside other systems in the same run.", "kolo-bench");
  app.set_version_flag("--version", std::string("kolo-bench ") + kVersion);
  app.require_subcommand(1);
  std::deque<CollectiveCommand> collectives;
  for (const Verb verb : kAllVerbs) collectives.emplace_back(app, verb);
  AgreementCommand agreement(app);
  ChoiceCommand choice(app);
  ErrorCommand error(app);
  OverlapCommand overlap(app);
  CodecOptions codec;
  add_codec_bench(app, codec);
  return run_program(app, argc, argv, [&] {
    for (CollectiveCommand& collective : collectives) {
      if (collective.chosen()) return collective.run();
    }
    return choice.chosen()               ? choice.run()
           : agreement.chosen()          ? agreement.run()
           : error.chosen()              ? error.run()
           : app.got_subcommand("codec") ? run_codec_bench(codec)
                                         : overlap.run();
  });
}

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) { return kolo::bench::main(argc, argv); }
