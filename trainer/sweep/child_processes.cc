#include "trainer/sweep/child_processes.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo::trainer {
namespace {

/// What is done with files between fork and exec.
class FileActions {
 public:
  explicit FileActions(const std::filesystem::path& log) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, log.c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND, 0666);
    ::posix_spawn_file_actions_adddup2(&actions_, STDOUT_FILENO, STDERR_FILENO);
  }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

pid_t start(const ChildProcess& process) {
  std::vector<char*> words;
  for (const std::string& word : process.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const FileActions actions(process.log);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, words[0], actions.get(), nullptr, words.data(), environ);
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

/// The processes that are under way. What is left of them is waited for.
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

}  // namespace kolo::trainer
