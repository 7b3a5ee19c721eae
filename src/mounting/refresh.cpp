#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include "corbd/core/gate.hpp"
#include "corbd/mounting/spec.hpp"
#include "work.hpp"

namespace corbd::mounting {
namespace {

using Secrets = std::map<std::string, Secret>;

/// Keys that the plugin was given, by target.
struct Given {
  std::map<std::string, Secrets> of;
  bool more = false;  ///< in this round
};

/// Returns the claim at the folder, if it is mounted.
task<result<std::optional<manager::Claim>>> claim_at(Mounter& mounter, const std::string& dir, Until until) {
  const auto target = co_await mounter.manager().name_of(dir, until);
  if (!target && target.error().code == errc::not_found) co_return std::nullopt;
  if (!target) co_return target.error();
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  const auto claim = std::ranges::find(*claims, *target, &manager::Claim::target);
  if (claim == claims->end() || claim->phase != manager::Claim::Phase::mounted) co_return std::nullopt;
  co_return *claim;
}

result<> leave_out(const std::string& dir, const std::string& why) {
  complain(dir + " keeps its key: " + why);
  return {};
}

task<result<>> refresh_one(Mounter& mounter, MountSpec spec, Given& given, Until until) {
  const auto claim = co_await claim_at(mounter, spec.dir, until);
  if (!claim) co_return claim.error();
  if (!*claim) co_return result<>();
  // A volume that is open needs no passphrase, and the file may have been there for the mount only.
  std::error_code failed;
  if (!std::filesystem::exists(spec.passphrase_file, failed)) spec.passphrase_file.clear();
  auto mount = mount_of(spec);
  if (!mount) co_return mount.error();
  mount->target = (*claim)->target;
  if (!keep_mounted(*mount, **claim, Keeps::type_and_options))
    co_return leave_out(
        mount->target,
        "it is mounted as another image, read-only or not, as a block device or not, or with other attributes. "
        "Correct its file, or unmount it and mount it again");
  if (const auto before = given.of.find(mount->target); before != given.of.end() && before->second == mount->secrets)
    co_return result<>();
  given.of[mount->target] = mount->secrets;
  given.more = true;
  const std::string name = mount->volume.name, target = mount->target;
  const auto refreshed = co_await mounter.manager().refresh(std::move(*mount), until);
  if (!refreshed) co_return refreshed.error();
  if (!*refreshed) co_return leave_out(target, "nothing of it is mounted there (`corbd mounts`)");
  std::cout << name << " at " << target << ": the agent was given the key of client." << spec.user << std::endl;
  co_return result<>();
}

task<> one_of_round(Mounter& mounter, Task one, Given& given, Slots& slots, Results& results, Until until) {
  const auto slot = co_await take_turn(slots, until);
  result<> done;
  if (!one.spec)
    done = one.spec.error();
  else if (!slot)
    done = slot.error();
  else
    done = co_await refresh_one(mounter, *one.spec, given, until);
  if (done) co_return;
  ++results.failed;
  complain(one.what + ": " + done.error().text);
}

}  // namespace

/// Reads all again until there is nothing new: what changed meanwhile started no other command.
task<result<Results>> refresh_all(Mounter& mounter, const Options& ask, Until until) {
  Slots slots(mounter.control(), mounter.clock(), "mounts", static_cast<std::size_t>(ask.parallel));
  Given given;
  for (;;) {
    auto tasks = co_await all_tasks(mounter, ask, until);
    if (!tasks) co_return tasks.error();
    Gate gate(mounter.control(), mounter.clock());
    Results results;
    given.more = false;
    for (auto& one : *tasks) gate.spawn(one_of_round(mounter, std::move(one), given, slots, results, until));
    co_await gate.close({});
    if (!given.more || results.failed > 0) co_return results;
  }
}

}  // namespace corbd::mounting
