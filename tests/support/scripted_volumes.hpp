// Volumes whose answers a test scripts, and which record the wishes.
#pragma once

#include <string>
#include <vector>

#include "corbd/plan/wish.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::test {

class ScriptedVolumes : public volume::Volumes {
 public:
  task<result<>> want(std::string id, plan::Wish wish, Until) override {
    wishes.push_back(std::move(wish));
    if (outcome) granted(id, wishes.back());
    co_return outcome;
  }
  task<result<host::Usage>> usage(std::string, std::string, Until) override { co_return host::Usage{}; }
  void count_used() override { ++counted; }
  result<volume::ManualCheck> check_by_hand(const std::string&, const std::string&, bool repair) override {
    if (!outcome) return outcome.error();
    check.repair = repair;
    return check;
  }
  std::vector<volume::Status> status() const override { return all; }
  std::optional<volume::Status> status(const std::string& id) const override {
    for (const auto& one : all)
      if (one.volume_id == id) return one;
    return std::nullopt;
  }
  std::vector<volume::Unclaimed> unclaimed() const override { return devices; }

  std::vector<volume::Status> all;
  std::vector<volume::Unclaimed> left_to_kernel() const override { return kernel_devices; }
  std::vector<volume::Unclaimed> devices, kernel_devices;
  std::vector<plan::Wish> wishes;
  volume::ManualCheck check;
  int counted = 0;  ///< calls of count_used()
  result<> outcome;

 private:
  virtual void granted(const std::string&, const plan::Wish&) {}
};

}  // namespace corbd::test
