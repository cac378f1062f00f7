#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test {

/// Generates random texts that the parser of a grammar sometimes accepts: sequences of words of the
/// grammar with random damage. Equal seeds give equal texts.
class RandomText {
 public:
  RandomText(std::uint64_t seed, std::vector<std::string> words)
      : random_(seed), words_(std::move(words)) {}

  /// Half of the texts are damaged texts from `whole`, which are nearly right.
  std::string next(const std::vector<std::string>& whole = {}) {
    std::string text;
    if (!whole.empty() && random_() % 2 == 0) {
      text = whole[random_() % whole.size()];
    } else {
      for (std::size_t left = random_() % 9; left > 0; --left) text += word();
    }
    for (std::size_t left = random_() % 3; left > 0; --left) damage(text);
    return text;
  }

 private:
  const std::string& word() { return words_[random_() % words_.size()]; }

  void damage(std::string& text) {
    const std::size_t at = random_() % (text.size() + 1);
    switch (random_() % 4) {
      case 0:
        text.insert(at, word());
        break;
      case 1:
        text.insert(at, 1, static_cast<char>(random_()));
        break;
      case 2:
        text.resize(at);
        break;
      default:
        text.erase(at, random_() % 3);
    }
  }

  std::mt19937_64 random_;
  std::vector<std::string> words_;
};

}  // namespace kolo::test
