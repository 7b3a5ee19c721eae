#include "manual_checks.hpp"

namespace corbd::volume {
namespace {

/// The command asks every second. Once it has left, a check that has not begun must not surprise anybody.
constexpr std::chrono::seconds kForgottenAfter{15};
constexpr std::chrono::minutes kResultKeptFor{10};

}  // namespace

std::optional<Error> why_not_checked(const Volume& volume, const Ports& ports) {
  if (!volume.record) return std::nullopt;
  const Record& record = *volume.record;
  const std::string what = "cannot check volume " + volume.id + ": ";
  if (record.use.block)
    return Error{errc::failed_precondition, what + "it is a raw block volume, whose content is its pods' own"};
  if (record.freeze)
    return Error{errc::failed_precondition, what + "its filesystem is frozen for a snapshot: repeat this later"};
  const auto devices = find_devices(volume, ports);
  const auto table = ports.mounts.table();
  if (!devices) return with_context("checking volume " + volume.id, devices.error());
  if (!table) return with_context("checking volume " + volume.id, table.error());
  if (devices->empty()) return std::nullopt;
  std::string mounts, pods;
  for (const auto& [place, row] : (*table)->rows())
    if (const auto& mount = row.mount; shows(mount, devices->front(), volume.id))
      mounts += (mounts.empty() ? "" : ", ") + mount.target;
  for (const auto& publish : record.publishes)
    if (!publish.pod.empty()) pods += (pods.empty() ? "" : ", ") + publish.pod;
  if (mounts.empty()) return std::nullopt;
  return Error{errc::in_use, what + "its filesystem is mounted at " + mounts +
                                 (pods.empty() ? "" : ", for the pods " + pods) +
                                 ". End the volume's pods, run this command once it is unstaged, and start the pods "
                                 "again while it waits: the check is made right before the mount"};
}

void ManualChecks::forget_old() {
  const auto now = clock_.now();
  std::erase_if(asked_, [&](const auto& one) {
    const Asked& asked = one.second;
    if (asked.state == ManualCheck::State::works) return false;
    return now - asked.asked_at > (asked.found ? duration(kResultKeptFor) : duration(kForgottenAfter));
  });
}

result<ManualCheck> ManualChecks::ask(const std::string& id, const std::string& token, bool repair,
                                      const std::optional<Error>& refused) {
  forget_old();
  const auto now = clock_.now();
  const auto [place, is_new] = asked_.try_emplace(id);
  Asked& asked = place->second;
  // The stage goes on after the check, and mounts.
  const bool has_begun = asked.state == ManualCheck::State::works || (asked.found && asked.token == token);
  if (refused && !has_begun) {
    asked_.erase(place);
    return *refused;
  }
  // An earlier command may have asked for something else. What has begun goes on.
  if (is_new || (asked.token != token && asked.state != ManualCheck::State::works)) {
    asked = Asked();
    asked.repair = repair;
    asked.since = now;
  }
  asked.token = token;
  asked.asked_at = now;
  ManualCheck told{.state = asked.state, .repair = asked.repair, .lasts = now - asked.since, .device = asked.device};
  if (asked.found) told.found = *asked.found;
  return told;
}

std::optional<bool> ManualChecks::begin(const std::string& id, const std::string& device) {
  forget_old();
  const auto place = asked_.find(id);
  if (place == asked_.end() || place->second.state == ManualCheck::State::done) return std::nullopt;
  Asked& asked = place->second;
  asked.state = ManualCheck::State::works;
  asked.since = clock_.now();
  asked.device = device;
  return asked.repair;
}

void ManualChecks::end(const std::string& id, result<host::Inspection> found) {
  const auto place = asked_.find(id);
  if (place == asked_.end()) return;
  place->second.state = ManualCheck::State::done;
  place->second.since = place->second.asked_at = clock_.now();
  place->second.found = std::move(found);
}

}  // namespace corbd::volume
