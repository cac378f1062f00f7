#include "trainer/sweep/sweep.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "comm/base/error.h"
#include "comm/base/output_file.h"
#include "comm/base/unique_handle.h"
#include "runtime/tools/command_line.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/files.h"

namespace kolo::trainer {
namespace {

/// Called in the child between fork and exec. Returns only on an error.
void execute(char* const* words, const char* log, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // a run ends with the sweep, however that ends
  if (::getppid() != parent) ::_exit(128 + SIGTERM);
  const int in = ::open("/dev/null", O_RDONLY);
  const int out = ::open(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (in < 0 || out < 0 || ::dup2(in, STDIN_FILENO) < 0 || ::dup2(out, STDOUT_FILENO) < 0 ||
      ::dup2(out, STDERR_FILENO) < 0) {
    return;
  }
  ::execvp(words[0], words);
}

pid_t start(const ChildProcess& process) {
  std::vector<char*> words;
  for (const std::string& word : process.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int ends[2] = {-1, -1};
  const bool has_pipe = ::pipe2(ends, O_CLOEXEC) == 0;
  FileDescriptor from_child(ends[0]), to_parent(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = has_pipe ? ::fork() : -1;
  int error = pid < 0 ? errno : 0;
  if (pid == 0) {
    execute(words.data(), process.log.c_str(), parent);
    error = errno;
    ::_exit(::write(to_parent.get(), &error, sizeof error) > 0 ? 127 : 126);
  }
  to_parent.reset();
  // The pipe ends without a word when the program has begun.
  if (pid > 0 && ::read(from_child.get(), &error, sizeof error) > 0) ::waitpid(pid, nullptr, 0);
  if (error != 0) {
    throw KoloError(
        {.code = ErrorCode::kIo,
         .what = fmt::format("cannot start {} with its output in {}: {}", process.words[0],
                             process.log.string(), std::strerror(error))});
  }
  return pid;
}

int exit_status_of(int state) {
  return WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
}

/// The running child processes. The destructor waits for all of them.
class Children {
 public:
  Children() = default;
  ~Children() {
    while (!indices_.empty()) wait();
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  std::size_t count() const { return indices_.size(); }
  void add(pid_t pid, std::size_t index) { indices_[pid] = index; }

  struct Ended {
    std::size_t index;
    int status;
  };
  Ended wait() {
    int state = 0;
    pid_t pid = 0;
    do {
      pid = ::waitpid(-1, &state, 0);
    } while (pid < 0 && errno == EINTR);
    const auto found = indices_.find(pid);
    const Ended ended{.index = found->second, .status = exit_status_of(state)};
    indices_.erase(found);
    return ended;
  }

 private:
  std::map<pid_t, std::size_t> indices_;
};

using Json = nlohmann::ordered_json;

std::filesystem::path folder_of(const SweepOptions& options, const Combination& combination) {
  return options.folder / folder_name(combination);
}

/// The process of a run up to `last_step`, or to its end if that is 0.
ChildProcess process_of(const SweepOptions& options, const Combination& combination,
                        std::size_t last_step) {
  const std::filesystem::path folder = folder_of(options, combination);
  ChildProcess process{.words = options.command, .log = folder / "log.txt"};
  auto& words = process.words;
  words.insert(words.end(), options.options.begin(), options.options.end());
  for (const auto& [option, value] : combination) {
    words.insert(words.end(), {"--" + option, value});
  }
  words.insert(words.end(), {"--run", folder.string(), "--resume", "auto", "--progress", "lines",
                             "--json", (folder / "summary.json").string()});
  if (last_step > 0) words.insert(words.end(), {"--stop-after", fmt::format("{}", last_step)});
  return process;
}

std::optional<double> number_in(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

/// Reads the latest numbers of a run from its metrics.jsonl into `result`: those up to `last_step`,
/// because an earlier sweep may have gone on, or all if that is 0.
void read_numbers(const std::filesystem::path& folder, std::size_t last_step, SweepResult& result) {
  std::ifstream in(folder / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, false);
    const auto at = json.is_object() ? json.find("step") : json.end();
    if (at == json.end() || !at->is_number_unsigned()) continue;
    const auto step = at->get<std::size_t>();
    if (last_step > 0 && step > last_step) continue;
    if (const auto loss = number_in(json, "train_loss")) result.train_loss = loss;
    if (!json.contains("eval_loss")) continue;
    result.steps = step;
    result.eval_loss = number_in(json, "eval_loss");
    for (const auto& [name, value] : json.items()) {
      if (!name.starts_with("eval_") || name == "eval_loss") continue;
      result.metric = name.substr(5);
      result.eval_metric = number_in(json, name);
    }
  }
}

bool has_failed(const SweepResult& result) { return result.status != 0 || !result.eval_loss; }

bool is_better(const SweepResult& a, const SweepResult& b) {
  const auto key = [](const SweepResult& r) {
    return std::tuple(has_failed(r), -static_cast<double>(r.rounds), r.eval_loss.value_or(0.0));
  };
  return key(a) < key(b);
}

std::string or_dash(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// The value of `flag` in `words`, as in "--steps 100" or "--steps=100"; empty if there is none.
std::string value_of(const std::vector<std::string>& words, std::string_view flag) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == flag) return i + 1 < words.size() ? words[i + 1] : "";
    if (word.starts_with(flag) && word.substr(flag.size()).starts_with('=')) {
      return std::string(word.substr(flag.size() + 1));
    }
  }
  return "";
}

std::size_t steps_in(const std::vector<std::string>& words) {
  const std::string text = value_of(words, "--steps");
  std::size_t steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error != std::errc() || end != text.data() + text.size() || steps == 0) {
    throw UsageError("kolo-train sweep: --rounds needs --steps NUMBER on the command line");
  }
  return steps;
}

void refuse_own(const std::vector<std::string>& words) {
  for (const char* flag : {"--run", "--resume", "--json", "--stop-after"}) {
    if (!value_of(words, flag).empty()) {
      throw UsageError(fmt::format("kolo-train sweep: {} is what it gives each run itself", flag));
    }
  }
}

}  // namespace

std::vector<int> run_all(const std::vector<ChildProcess>& processes, std::size_t at_once,
                         const std::function<void(std::size_t index, int status)>& ended) {
  std::vector<int> statuses(processes.size());
  Children children;
  std::size_t next = 0;
  while (next < processes.size() || children.count() > 0) {
    if (next < processes.size() && children.count() < at_once) {
      children.add(start(processes[next]), next);
      ++next;
      continue;
    }
    const Children::Ended child = children.wait();
    statuses[child.index] = child.status;
    ended(child.index, child.status);
  }
  return statuses;
}

Dimension parse_dimension(std::string_view text) {
  const std::size_t equals = text.find('=');
  std::string_view name = text.substr(0, equals);
  while (name.starts_with('-')) name.remove_prefix(1);
  Dimension dimension{.option = std::string(name), .values = {""}};
  int depth = 0;
  for (const char c : text.substr(std::min(equals, text.size() - 1) + 1)) {
    if (c == ',' && depth == 0) {
      dimension.values.emplace_back();
      continue;
    }
    depth += (c == '(') - (c == ')');
    dimension.values.back() += c;
  }
  const bool is_empty = std::ranges::any_of(dimension.values, &std::string::empty);
  if (equals == std::string_view::npos || name.empty() || is_empty) {
    throw UsageError(
        fmt::format("--vary {}: it should read OPTION=VALUE,VALUE, as in lr=1e-3,3e-3", text));
  }
  return dimension;
}

std::vector<Combination> all_combinations(const std::vector<Dimension>& dimensions) {
  std::vector<Combination> combinations = {{}};
  for (const Dimension& dimension : dimensions) {
    std::vector<Combination> longer;
    for (const Combination& combination : combinations) {
      if (std::ranges::count(combination, dimension.option, &Setting::option) > 0) {
        throw UsageError(fmt::format("--vary {}: it is named twice", dimension.option));
      }
      for (const std::string& value : dimension.values) {
        longer.push_back(combination);
        longer.back().push_back({dimension.option, value});
      }
    }
    combinations = std::move(longer);
  }
  return combinations;
}

std::string folder_name(const Combination& combination) {
  std::string name;
  for (const auto& [option, value] : combination) {
    name += fmt::format("{}{}={}", name.empty() ? "" : ",", option, value);
  }
  std::ranges::replace_if(
      name,
      [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) == 0 &&
               std::string_view(".,=+-()_").find(c) == std::string_view::npos;
      },
      '_');
  return name;
}

std::vector<SweepResult> run_sweep(const SweepOptions& options, std::FILE* out) {
  std::vector<SweepResult> results;
  std::set<std::string> names;
  const std::vector<Combination> combinations = all_combinations(options.dimensions);
  for (const Combination& combination : combinations) {
    const std::string name = folder_name(combination);
    if (names.insert(name).second) continue;
    throw UsageError(
        fmt::format("--vary: two runs would have the folder {}; name values that "
                    "differ in letters and digits",
                    name));
  }
  for (const Combination& combination : combinations) {
    results.push_back({.combination = combination});
    std::error_code error;
    std::filesystem::create_directories(folder_of(options, combination), error);
    if (error) throw_io_error("create", folder_of(options, combination), error.message());
  }
  // It marks the folder, so that no run takes what others write for text of its own data.
  const std::filesystem::path table = options.folder / "sweep.json";
  if (!is_there(table)) write_file(table, "[]\n");
  std::size_t runs = results.size();  // number of runs in this round, the best of `results`
  for (std::size_t round = 0; round < options.rounds; ++round) {
    const bool is_last = round + 1 == options.rounds;
    const std::size_t last_step =
        is_last ? 0 : std::max<std::size_t>(options.steps >> (options.rounds - 1 - round), 1);
    std::vector<ChildProcess> processes;
    std::vector<std::size_t> indices;  // of the results of these processes
    for (std::size_t i = 0; i < runs; ++i) {
      results[i].rounds = round + 1;
      const std::filesystem::path folder = folder_of(options, results[i].combination);
      const std::vector<std::uint64_t> steps = RunFolder(folder).steps();
      if (last_step > 0 && !steps.empty() && steps.front() >= last_step) {
        read_numbers(folder, last_step, results[i]);  // an earlier sweep has taken these steps
        continue;
      }
      processes.push_back(process_of(options, results[i].combination, last_step));
      indices.push_back(i);
    }
    fmt::print(out, "round {} of {}: {} runs{}\n", round + 1, options.rounds, runs,
               last_step > 0 ? fmt::format(" to step {}", last_step) : "");
    run_all(processes, options.at_once, [&](std::size_t index, int status) {
      SweepResult& result = results[indices[index]];
      result.status = status;
      read_numbers(folder_of(options, result.combination), last_step, result);
      const std::string outcome =
          status == 0 ? "held-out loss " + or_dash(result.eval_loss)
                      : fmt::format("status {}, see {}", status, processes[index].log.string());
      fmt::print(out, "  {}: step {}, {}\n", folder_name(result.combination), result.steps,
                 outcome);
      std::fflush(out);
    });
    std::stable_sort(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(runs),
                     is_better);
    const auto good = static_cast<std::size_t>(
        std::count_if(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(runs),
                      std::not_fn(has_failed)));
    runs = std::min(good, (runs + 1) / 2);
  }
  std::ranges::stable_sort(results, is_better);
  return results;
}

std::string to_table(const std::vector<SweepResult>& results) {
  std::vector<std::vector<std::string>> rows(1);
  if (results.empty()) return "";
  for (const Setting& setting : results[0].combination) rows[0].push_back(setting.option);
  const auto named = std::ranges::find_if(results, [](const auto& r) { return !r.metric.empty(); });
  rows[0].insert(rows[0].end(), {"steps", "train loss", "held-out loss",
                                 named == results.end() ? "metric" : named->metric, "status"});
  for (const SweepResult& result : results) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const Setting& setting : result.combination) row.push_back(setting.value);
    row.insert(row.end(), {fmt::format("{}", result.steps), or_dash(result.train_loss),
                           or_dash(result.eval_loss), or_dash(result.eval_metric),
                           result.status == 0 ? "ok" : fmt::format("{}", result.status)});
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : rows) width = std::max(width, other[column].size());
      text += fmt::format("{:>{}}{}", row[column], width, column + 1 < row.size() ? "  " : "\n");
    }
  }
  return text;
}

std::string to_json(const std::vector<SweepResult>& results) {
  const auto or_null = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  Json runs = Json::array();
  for (const SweepResult& result : results) {
    Json options = Json::object();
    for (const Setting& setting : result.combination) options[setting.option] = setting.value;
    runs.push_back({{"options", std::move(options)},
                    {"folder", folder_name(result.combination)},
                    {"status", result.status},
                    {"steps", result.steps},
                    {"train_loss", or_null(result.train_loss)},
                    {"eval_loss", or_null(result.eval_loss)},
                    {"metric", result.metric},
                    {"eval_metric", or_null(result.eval_metric)}});
  }
  return runs.dump(2) + "\n";
}

int run_sweep_command(int argc, const char* const* argv) {
  CLI::App app(
      "Trains with every combination of some options, and compares the results. All other options "
      "are those of kolo-train, for every run.",
      "kolo-train sweep");
  SweepOptions sweep;
  std::vector<std::string> dimensions;
  std::string launcher;
  app.add_option("--vary", dimensions,
                 "Values of an option, OPTION=VALUE,VALUE as in lr=1e-3,3e-3; may come repeatedly")
      ->required()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--folder", sweep.folder, "Folder of all runs; a run that it has goes on")
      ->required();
  app.add_option("--launcher", launcher,
                 "What starts each run, such as 'mpirun -np 4'; none alone");
  app.add_option("--at-once", sweep.at_once, "Runs side by side; at least 1, which is the default");
  app.add_option("--rounds", sweep.rounds,
                 "Successive halving: in each round the better half of the runs goes on to twice "
                 "the steps; 1, the default: all runs take all steps");
  app.allow_extras();
  if (!parse_arguments(app, argc, argv)) return 0;
  if (sweep.at_once == 0 || sweep.rounds == 0) {
    throw UsageError("kolo-train sweep: --at-once and --rounds must be at least 1");
  }
  for (const std::string& text : dimensions) sweep.dimensions.push_back(parse_dimension(text));
  sweep.options = app.remaining();
  refuse_own(sweep.options);
  for (const Dimension& dimension : sweep.dimensions) {
    refuse_own({"--" + dimension.option, dimension.values[0]});
  }
  if (sweep.rounds > 1) sweep.steps = steps_in(sweep.options);
  sweep.command = words_of(launcher);
  sweep.command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  const std::vector<SweepResult> results = run_sweep(sweep, stdout);
  fmt::print("\n{}", to_table(results));
  write_file(sweep.folder / "sweep.json", to_json(results));
  return results.front().status;
}

}  // namespace kolo::trainer
