#include "trainer/tokens/tokenize_command.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "runtime/tools/command_line.h"
#include "trainer/text/learn_byte_pairs.h"
#include "trainer/tokens/tokenize.h"

namespace kolo::trainer {
namespace {

void print_note(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

}  // namespace

int run_tokenize_command(int argc, const char* const* argv) {
  CLI::App app(
      "Writes a text as tokens into a folder that --data of kolo-train names, or compares such a "
      "folder with the sums of its files.",
      "kolo-train tokenize");
  TokenizeOptions options;
  std::filesystem::path checked;
  app.option_defaults()->always_capture_default();
  auto* data = app.add_option("--data", options.data,
                              "The text: a file, or a directory of *.md *.txt *.h *.cc *.py *.sh, "
                              "with an end of text between files; the last tenth is held out");
  auto* out = app.add_option("--out", options.out, "The folder to make");
  data->needs(out);
  out->needs(data);
  auto* tokenizer = app.add_option("--tokenizer", options.tokenizer,
                                   "Folder with vocab.json and merges.txt, as GPT-2's; byte pairs "
                                   "are learnt from the text unless given");
  app.add_option("--vocabulary", options.vocabulary,
                 "Tokens to learn at most, with the 256 bytes and the end of a text")
      ->check(CLI::Range(kFewestTokens, std::size_t{1} << 24))
      ->excludes(tokenizer);
  app.add_option("--shard-tokens", options.shard_tokens, "Tokens of a file at most")
      ->check(CLI::PositiveNumber);
  app.add_option("--check", checked, "A folder of tokens to compare with the sums of its files")
      ->excludes(data);
  try {
    app.parse(argc, argv);
    if (data->count() == 0 && checked.empty()) throw CLI::RequiredError("--data or --check");
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    throw UsageError(describe_usage_error(app, error) + " (kolo-train tokenize --help explains)");
  }
  if (checked.empty()) {
    tokenize(options, print_note);
    print_note(fmt::format("{} is complete", options.out.string()));
  } else {
    verify_tokens(checked, print_note);
  }
  return 0;
}

}  // namespace kolo::trainer
