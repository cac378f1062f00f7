#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/api/kolo.h"

namespace kolo::test {

/// Forks a child, in which every call is refused. Errors: runtime_error if one is not.
inline void fork_a_child(Runtime& job) {
  std::vector<float> values(10);
  const BufferView view{values.data(), values.size()};
  GradientSet set = job.register_gradients("model", {{.name = "g", .shape = {10}}});
  std::vector<float> received(10);
  ReceiveTicket late = job.recv_async({received.data(), received.size()}, job.rank(), 3);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::function<void()> calls[] = {
        [&] { job.all_reduce("x", view); },
        [&] { job.all_reduce_async("x", view); },
        [&] { job.barrier(); },
        [&] { job.send(view, 0); },
        [&] { job.group({job.rank()}); },
        [&] { job.register_gradients("more", {{.name = "g", .shape = {10}}}); },
        [&] { set.ready(0); },
        [&] { late.wait(); },
        [&] { job.allocate(10); },
        [&] { job.join(); },
        [&] { job.abort("a child"); },
        [&] { job.close(); },
    };
    int refused = 0;
    for (const auto& call : calls) {
      try {
        call();
      } catch (const UsageError& e) {
        if (e.error().what.find("was forked from") != std::string::npos) ++refused;
      }
    }
    { const Runtime gone = std::move(job); }
    ::_exit(refused == std::ssize(calls) ? EXIT_SUCCESS : 100 + refused);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  if (status != 0) throw std::runtime_error("the child ended with " + std::to_string(status));
  job.send(view, job.rank(), 3);
  late.wait();
}

}  // namespace kolo::test
