#include "policy.hpp"

#include <array>
#include <csignal>

namespace corbd::keeper {
namespace {
using namespace std::chrono_literals;
constexpr auto kWithin = 10s;
// The first comes at once: a request waits for it.
constexpr std::array<std::chrono::milliseconds, 3> kPauses{0ms, 100ms, 500ms};
}  // namespace

bool trusts(int signal) {
  return signal == 0 || signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP ||
         signal == SIGQUIT;
}

std::optional<duration> Policy::died(time_point now) {
  std::erase_if(deaths_, [&](time_point death) { return now - death >= kWithin; });
  deaths_.push_back(now);
  if (deaths_.size() > kPauses.size()) return std::nullopt;
  return kPauses.at(deaths_.size() - 1);
}

}  // namespace corbd::keeper
