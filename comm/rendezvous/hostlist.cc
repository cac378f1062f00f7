#include "comm/rendezvous/hostlist.h"

#include <charconv>
#include <cstdint>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

class HostlistParser {
 public:
  explicit HostlistParser(std::string_view list) : list_(list), rest_(list) {}

  std::vector<std::string> parse() {
    std::vector<std::string> hosts;
    do {
      for (std::string& host : next_item()) hosts.push_back(std::move(host));
      if (hosts.size() > kMaxHosts) reject("names too many hosts");
    } while (accept(','));
    return hosts;
  }

 private:
  [[noreturn]] void reject(std::string_view why) const {
    throw KoloError(Error{.code = ErrorCode::kConfig,
                          .verb = {},
                          .bucket = {},
                          .what = fmt::format("host list '{}' {}", list_, why)});
  }

  bool accept(char wanted) {
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  /// One item of the outer list: literal parts and brackets, which multiply.
  std::vector<std::string> next_item() {
    std::vector<std::string> names{""};
    while (!rest_.empty() && rest_.front() != ',') {
      if (accept('[')) {
        names = product(names, bracket());
      } else {
        const std::string_view literal = take_until(",[]");
        if (literal.empty()) reject("has a ']' without '['");
        for (std::string& name : names) name += literal;
      }
    }
    if (names.front().empty()) reject("has an empty name");
    return names;
  }

  std::vector<std::string> product(const std::vector<std::string>& heads,
                                   const std::vector<std::string>& tails) const {
    if (heads.size() * tails.size() > kMaxHosts) reject("names too many hosts");
    std::vector<std::string> all;
    for (const std::string& head : heads) {
      for (const std::string& tail : tails) all.push_back(head + tail);
    }
    return all;
  }

  std::vector<std::string> bracket() {
    std::vector<std::string> numbers;
    do {
      const std::string_view first = take_until("-,]");
      const std::string_view last = accept('-') ? take_until(",]") : first;
      const std::uint32_t low = number(first);
      const std::uint32_t high = number(last);
      if (low > high) reject("has a range that falls");
      if (high - low >= kMaxHosts - numbers.size()) reject("names too many hosts");
      for (std::uint32_t value = low; value <= high; ++value) {
        numbers.push_back(fmt::format("{:0{}}", value, first.size()));
      }
    } while (accept(','));
    if (!accept(']')) reject("has a '[' without ']'");
    return numbers;
  }

  std::string_view take_until(std::string_view stops) {
    const std::string_view taken = rest_.substr(0, rest_.find_first_of(stops));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::uint32_t number(std::string_view digits) const {
    constexpr std::size_t kMaxDigits = 9;  // Any larger number would overflow the width or value.
    std::uint32_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (digits.empty() || digits.size() > kMaxDigits || error != std::errc{} || stop != end) {
      reject("has something else than a number in brackets");
    }
    return value;
  }

  std::string_view list_;
  std::string_view rest_;
};

}  // namespace

std::vector<std::string> parse_hostlist(std::string_view list) {
  return HostlistParser(list).parse();
}

}  // namespace kolo
