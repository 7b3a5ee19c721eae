#include "corbd/heal/wait_for_users.hpp"

#include "corbd/core/log.hpp"

namespace corbd::heal {
namespace {

constexpr std::chrono::milliseconds kPause{500};
constexpr std::chrono::seconds kSayEvery{10}, kAfterwards{10};

}  // namespace

std::vector<std::string> served_in_use(const volume::Volumes& volumes) {
  std::vector<std::string> ids;
  for (const auto& status : volumes.status())
    if (status.in_use && traits(status.kind).served) ids.push_back(status.volume_id);
  return ids;
}

task<> wait_for_users(executor control, Clock& clock, volume::Volumes& volumes, std::chrono::seconds grace,
                      CancelScope& hurry) {
  const auto end = clock.now() + grace;
  auto say_at = clock.now();
  bool given_up = false;
  while (!hurry.cancelled()) {
    const auto used = served_in_use(volumes);
    const auto now = clock.now();
    if (used.empty() || now >= end + kAfterwards) co_return;
    if (now >= end && !std::exchange(given_up, true)) {
      log::error("shutdown.gives_up", {{"volumes", used.size()}, {"first", used.front()}});
      for (const auto& id : used)
        co_await volumes.want(id, plan::Wish(plan::GivenUp{}), Until{clock.now() + kAfterwards, &hurry});
    }
    if (now >= say_at) {
      say_at = now + kSayEvery;
      log::info("shutdown.waits",
                {{"volumes", used.size()},
                 {"first", used.front()},
                 {"grace_left_s", std::chrono::duration_cast<std::chrono::seconds>(end - now).count()}});
    }
    co_await sleep_until(control, clock, now + kPause, &hurry);
  }
}

}  // namespace corbd::heal
