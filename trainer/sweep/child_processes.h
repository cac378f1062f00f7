#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace kolo::trainer {

/// A program with its arguments, and the file for what it prints.
struct ChildProcess {
  std::vector<std::string> words;
  std::filesystem::path log;
};

/// Runs all of them, `at_once` at a time, in order, and returns their exit statuses; 128 + N for
/// one that signal N ended. `ended` is called as soon as each ends. Threads: one, in a program
/// without other children. Errors:  KoloError(kIo) naming a program that cannot be started or a log
/// that cannot be written;
///          the processes that are under way are waited for.
std::vector<int> run_all(const std::vector<ChildProcess>& processes, std::size_t at_once,
                         const std::function<void(std::size_t index, int status)>& ended);

}  // namespace kolo::trainer
