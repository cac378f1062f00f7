#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test {

/// Runs this test binary again, with other arguments. The destructor kills and reaps the process.
class ChildProcess {
 public:
  explicit ChildProcess(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "/proc/self/exe");
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    if (::posix_spawn(&pid_, pointers[0], nullptr, nullptr, pointers.data(), environ) != 0) {
      throw std::runtime_error("cannot start a child process");
    }
  }
  ~ChildProcess() {
    if (pid_ <= 0) return;
    kill();
    wait();
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void kill() const { ::kill(pid_, SIGKILL); }

  /// Blocks until the child ends, and returns its wait status.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_ = -1;
};

/// Called in a child: kills it when the thread that started it ends.
inline void die_with_parent() { ::prctl(PR_SET_PDEATHSIG, SIGKILL); }

}  // namespace kolo::test
