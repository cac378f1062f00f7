#include "comm/base/log.h"

#include <cstdlib>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace kolo::log {
namespace {

// spdlog keeps loggers in a registry of its own; ours is made on first use.
spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("kolo", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("kolo: %v");
    const char* level = std::getenv("KOLO_LOG_LEVEL");
    made->set_level(level ? spdlog::level::from_str(level) : spdlog::level::warn);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_identity(int rank, std::string_view node) {
  logger().set_pattern(fmt::format("kolo: rank {} (node {}): %v", rank, node));
}
void error(std::string_view text) { logger().error("{}", text); }
void warn(std::string_view text) { logger().warn("{}", text); }
void info(std::string_view text) { logger().info("{}", text); }
void debug(std::string_view text) { logger().debug("{}", text); }

}  // namespace kolo::log
