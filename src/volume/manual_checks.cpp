#include "manual_checks.hpp"

#include <algorithm>

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

Error ManualChecks::busy(const std::string& id, const Due& due, time_point now) {
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - due.since).count();
  return {errc::busy, "cannot check volume " + id + ": another `corbd fsck` with" + (due.repair ? "" : "out") +
                          " --repair " + (due.begun ? "began to check it " : "has waited for ") + std::to_string(age) +
                          (due.begun ? " s ago: repeat this once it has ended"
                                     : " s: wait for its result, or end it and repeat this after 15 s")};
}

void ManualChecks::forget_old() {
  const auto now = clock_.now();
  for (auto& [id, checks] : all_) {
    const bool begun = checks.due && checks.due->begun;
    std::erase_if(checks.runs, [&](const auto& one) {
      const Run& run = one.second;
      if (run.done) return now - std::max(run.asked_at, run.done_at) > kResultKeptFor;
      return !begun && now - run.asked_at > kForgottenAfter;
    });
    const bool waited_for = std::ranges::any_of(checks.runs, [](const auto& one) { return !one.second.done; });
    if (!begun && !waited_for) checks.due.reset();
  }
  std::erase_if(all_, [](const auto& one) { return !one.second.due && one.second.runs.empty(); });
}

result<ManualCheck> ManualChecks::ask(const std::string& id, const std::string& token, bool repair,
                                      const std::optional<Error>& refused) {
  forget_old();
  const auto now = clock_.now();
  Checks& checks = all_[id];
  if (const auto known = checks.runs.find(token); known != checks.runs.end() && known->second.done) {
    known->second.asked_at = now;
    ManualCheck told = *known->second.done;
    told.lasts = now - known->second.done_at;
    return told;
  }
  // The stage goes on after the check, and mounts. What has begun goes on, whatever this run wants.
  const bool begun = checks.due && checks.due->begun;
  if (refused && !begun) {
    checks.runs.erase(token);
    return *refused;
  }
  // Nothing may be repaired against anybody's word: a run that wants nothing changed prevails until the check begins.
  if (!begun && checks.due && checks.due->repair && !repair) {
    checks.due->repair = false;
    std::erase_if(checks.runs, [](const auto& one) { return !one.second.done; });
  }
  if (checks.due && checks.due->repair != repair) {
    checks.runs.erase(token);
    return busy(id, *checks.due, now);
  }
  if (!checks.due) checks.due = Due{.repair = repair, .since = now};
  checks.runs[token].asked_at = now;
  return ManualCheck{.state = begun ? ManualCheck::State::works : ManualCheck::State::waits,
                     .repair = checks.due->repair,
                     .lasts = now - checks.due->since,
                     .device = checks.due->device};
}

std::optional<bool> ManualChecks::begin(const std::string& id, const std::string& device) {
  forget_old();
  const auto place = all_.find(id);
  if (place == all_.end() || !place->second.due) return std::nullopt;
  Due& due = *place->second.due;
  due = {.repair = due.repair, .begun = true, .since = clock_.now(), .device = device};
  return due.repair;
}

void ManualChecks::end(const std::string& id, result<host::Inspection> found) {
  const auto place = all_.find(id);
  if (place == all_.end() || !place->second.due) return;
  Checks& checks = place->second;
  const ManualCheck done{.state = ManualCheck::State::done,
                         .repair = checks.due->repair,
                         .device = checks.due->device,
                         .found = std::move(found)};
  for (auto& [token, run] : checks.runs) {
    if (run.done) continue;
    run.done = done;
    run.done_at = clock_.now();
  }
  checks.due.reset();
}

}  // namespace corbd::volume
