// kolo-bench: measures what Kolo's collectives cost, beside other systems in the same run.

#include <exception>

#include <CLI/CLI.hpp>

#include "benchmarks/agreement_command.h"
#include "benchmarks/all_reduce_command.h"
#include "benchmarks/choice_command.h"
#include "benchmarks/codec_bench.h"
#include "benchmarks/error_command.h"
#include "benchmarks/overlap_command.h"
#include "comm/base/error.h"
#include "comm/base/log.h"
#include "runtime/version.h"

namespace kolo::bench {
namespace {

int main(int argc, char** argv) {
  CLI::App app("Measures Kolo's collectives, beside other systems in the same run.", "kolo-bench");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  AllReduceCommand all_reduce(app);
  AgreementCommand agreement(app);
  ChoiceCommand choice(app);
  ErrorCommand error(app);
  OverlapCommand overlap(app);
  CodecOptions codec;
  add_codec_bench(app, codec);
  try {
    app.parse(argc, argv);
    const bool right = all_reduce.chosen()           ? all_reduce.run()
                       : choice.chosen()             ? choice.run()
                       : agreement.chosen()          ? agreement.run()
                       : error.chosen()              ? error.run()
                       : app.got_subcommand("codec") ? run_codec_bench(codec)
                                                     : overlap.run();
    return right ? 0 : exit_status(ErrorCode::kInternal);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : exit_status(ErrorCode::kUsage);
  } catch (const KoloError& e) {
    log::error(e.what());
    return exit_status(e.error().code);
  } catch (const std::exception& e) {  // A peer's own.
    log::error(e.what());
    return exit_status(ErrorCode::kInternal);
  }
}

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) { return kolo::bench::main(argc, argv); }
