#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/collective/collective_system.h"

namespace kolo::bench {

/// A fake call copies the contribution to the sum, as on a single rank, and then calls this.
using FakeCall =
    std::function<void(std::vector<std::byte>& contribution, std::vector<std::byte>& sum)>;

/// A fake system. Each of its algorithms makes one of the given calls.
class FakeSystem final : public CollectiveSystem {
 public:
  explicit FakeSystem(std::vector<std::pair<std::string, FakeCall>> calls)
      : calls_(std::move(calls)) {}

  std::string name() const override { return "fake"; }
  std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) override {
    cases.push_back(what);
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    for (const auto& [name, call] : calls_) {
      runs.push_back(std::make_unique<Run>(what.bytes, name, call));
    }
    return runs;
  }

  std::vector<CollectiveCase> cases;

 private:
  class Run final : public CollectiveRun {
   public:
    Run(std::size_t bytes, std::string name, FakeCall call)
        : contribution_(bytes), sum_(bytes), name_(std::move(name)), call_(std::move(call)) {}
    void write(const void* elements) override {
      std::memcpy(contribution_.data(), elements, contribution_.size());
    }
    void read(void* elements) override { std::memcpy(elements, sum_.data(), sum_.size()); }
    void read_contribution(void* elements) override {
      std::memcpy(elements, contribution_.data(), contribution_.size());
    }
    void run() override {
      sum_ = contribution_;
      call_(contribution_, sum_);
    }
    std::string algorithm() const override { return name_; }

   private:
    std::vector<std::byte> contribution_, sum_;
    std::string name_;
    FakeCall call_;
  };

  std::vector<std::pair<std::string, FakeCall>> calls_;
};

}  // namespace kolo::bench
