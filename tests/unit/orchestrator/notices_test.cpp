// What people are told of a volume, and when.
#include "corbd/orchestrator/notices.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using orchestrator::Notices;
using volume::Health;

namespace {

struct Scene {
  Notices notices;
  volume::Status status;
  time_point now{};
  Scene() { status.volume_id = "v"; }
  /// Reasons, in order.
  std::vector<std::string> becomes(Health health, const std::string& why = "") {
    status.health = health;
    return reasons(notices.changed({{}, "v", Health::staged, health, why}, status, now));
  }
  std::vector<std::string> after(std::chrono::seconds time) {
    now += time;
    return reasons(notices.due({status}, now));
  }
  std::vector<std::string> reasons(const std::vector<Notices::Told>& all) {
    std::vector<std::string> names;
    for (const auto& told : all) {
      names.push_back(told.notice.reason);
      message = told.notice.message;
      warning = told.notice.warning;
    }
    return names;
  }
  std::string message;
  bool warning = false;
};

using Reasons = std::vector<std::string>;

}  // namespace

TEST_CASE("a short stall makes no Event") {
  Scene scene;
  CHECK(scene.becomes(Health::reconnecting).empty());
  CHECK(scene.after(9s).empty());
  CHECK(scene.becomes(Health::staged).empty());
  CHECK(scene.notices.next() == time_point::max());
}

TEST_CASE("a long stall makes one Event, and its end another with the stall's length") {
  Scene scene;
  CHECK(scene.becomes(Health::reconnecting).empty());
  CHECK(scene.after(10s) == Reasons{"VolumeStalled"});
  CHECK(scene.warning);
  CHECK(scene.after(5s).empty());
  CHECK(scene.becomes(Health::staged) == Reasons{"VolumeHealed"});
  CHECK_THAT(scene.message, ContainsSubstring("15 s"));
  CHECK_FALSE(scene.warning);
}

TEST_CASE("healing that fails for a minute makes one Event with the error") {
  Scene scene;
  scene.becomes(Health::reconnecting);
  scene.status.last_error = Error{errc::unreachable, "no monitor answers"};
  CHECK(scene.after(60s) == Reasons{"VolumeStalled", "HealingFailed"});
  CHECK_THAT(scene.message, ContainsSubstring("no monitor answers") && ContainsSubstring("corbd volume v"));
  CHECK(scene.after(60s).empty());
}

TEST_CASE("a client that was cut off makes an Event at once") {
  Scene scene;
  scene.status.access_lost = true;
  CHECK(scene.becomes(Health::reconnecting) == Reasons{"VolumeFenced"});
  CHECK(scene.after(10s).empty());
}

TEST_CASE("an unproven volume makes an Event with the reason, and a lost one an Event with the remedy") {
  Scene scene;
  CHECK(scene.becomes(Health::unproven, "its lock is free") == Reasons{"HealingFailed"});
  CHECK_THAT(scene.message, ContainsSubstring("its lock is free"));
  CHECK(scene.becomes(Health::lost, "it is locked elsewhere") == Reasons{"VolumeLost"});
  CHECK_THAT(scene.message, ContainsSubstring("End the pods"));
  CHECK(scene.becomes(Health::failed).empty());
  CHECK(scene.notices.next() == time_point::max());
}

TEST_CASE("a volume in use whose device another program disconnected makes one Event with the remedy") {
  Scene scene;
  scene.becomes(Health::reconnecting);
  if (GENERATE(true, false))
    scene.status.in_use = true;
  else
    scene.status.published_at = {"/pod"};
  CHECK(scene.becomes(Health::absent) == Reasons{"VolumeLost"});
  CHECK(scene.message.find("End them on this node") != std::string::npos);
  CHECK(scene.after(120s).empty());
  CHECK(scene.becomes(Health::staged).empty());
}

TEST_CASE("an operator override makes a warning Event with who gave it and its result") {
  const auto served = orchestrator::override_notice({.operator_override = true}, "uid 0, pid 7", {});
  CHECK(served.reason == "HealedByOverride");
  CHECK(served.warning);
  CHECK_THAT(served.message, ContainsSubstring("uid 0, pid 7"));
  const auto refused =
      orchestrator::override_notice({.operator_override = true}, "", Error{errc::lost, "it is attached elsewhere"});
  CHECK(refused.reason == "OverrideRefused");
  CHECK_THAT(refused.message, ContainsSubstring("it is attached elsewhere"));
}

TEST_CASE("an accepted loss makes a warning Event that names who accepted it, even if flushes still fail") {
  const auto accepted = orchestrator::override_notice({.loss_accepted = true}, "uid 0, pid 7", {});
  CHECK(accepted.reason == "LossAccepted");
  CHECK(accepted.warning);
  CHECK_THAT(accepted.message, ContainsSubstring("uid 0, pid 7") && ContainsSubstring("stay lost"));
  const auto refused =
      orchestrator::override_notice({.loss_accepted = true}, "", Error{errc::state_write, "disk full"});
  CHECK(refused.reason == "OverrideRefused");
  CHECK_THAT(refused.message, ContainsSubstring("still fails: disk full"));
}

TEST_CASE("a volume that was unstaged makes no more Events") {
  Scene scene;
  scene.becomes(Health::reconnecting);
  scene.becomes(Health::absent);
  CHECK(scene.notices.next() == time_point::max());
  CHECK(scene.after(60s).empty());
}
