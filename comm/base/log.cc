#include "comm/base/log.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace kolo::log {
namespace {

std::optional<spdlog::level::level_enum> level_of(std::string_view name) {
  if (name == "error") return spdlog::level::err;
  if (name == "warn") return spdlog::level::warn;
  if (name == "info") return spdlog::level::info;
  if (name == "debug") return spdlog::level::debug;
  return std::nullopt;
}

// Created on first use and never destroyed. A runtime in a static variable is destroyed after all
// objects created later, and its destructor may log.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* const made =
        new spdlog::logger("kolo", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("kolo: %v");
    made->flush_on(spdlog::level::trace);
    const char* variable = std::getenv("KOLO_LOG_LEVEL");
    const std::string name = variable ? variable : "warn";
    const auto level = level_of(name);
    made->set_level(level.value_or(spdlog::level::warn));
    if (!level) {
      made->warn("KOLO_LOG_LEVEL: '{}' is not error, warn, info or debug; taking warn", name);
    }
    return made;
  }();
  return *instance;
}

/// The rank of this process; -1 until `set_identity`.
std::atomic<int>& own_rank() {
  static std::atomic<int> rank{-1};
  return rank;
}

}  // namespace

void report(Error& error) {
  if (error.logged) return;
  error.logged = true;
  Error shown = error;
  if (shown.rank == own_rank()) shown.rank = -1;  // every line already begins with this rank
  logger().error("{}", shown.to_string());
}

void set_identity(int rank, std::string_view node) {
  own_rank() = rank;
  logger().set_pattern(fmt::format("kolo: rank {} (node {}): %v", rank, node));
}
void error(std::string_view text) { logger().error("{}", text); }
void warn(std::string_view text) { logger().warn("{}", text); }
void notice(std::string_view text) { warn(text); }
void info(std::string_view text) { logger().info("{}", text); }
void debug(std::string_view text) { logger().debug("{}", text); }

}  // namespace kolo::log
