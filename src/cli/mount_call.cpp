#include <boost/json/serialize.hpp>
#include <filesystem>
#include <iostream>

#include "corbd/cli/mounts.hpp"
#include "corbd/core/async_lock.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/rpc/calls.hpp"
#include "mount_view.hpp"
#include "mount_wish.hpp"
#include "mounter.hpp"
#include "text.hpp"

namespace corbd::cli {
namespace {

constexpr int kDone = 0, kFailed = 1, kNoPlugin = 3;

int complain(const std::string& text) {
  std::cerr << "corbd: " << printable(text) << std::endl;
  return kFailed;
}

/// Static volumes are known to their plugin by the image's name alone.
result<> check_image_name(const std::vector<manager::Claim>& claims, const manager::Volume& volume) {
  for (const auto& claim : claims)
    if (claim.volume.external_id == volume.external_id && claim.volume.name != volume.name)
      return Error{errc::already_exists, "the image " + claim.volume.name + " is mounted at " + claim.target +
                                             ", and an agent cannot tell two images of one name apart: unmount it, or "
                                             "rename this one"};
  return {};
}

/// A claim of another volume or usage at the target ends, if nothing is mounted there: its file was edited, and then
/// the host rebooted.
task<result<>> end_old_claim(Mounter& mounter, std::vector<manager::Claim> claims, manager::Mount mount,
                             int timeout_s) {
  for (const auto& claim : claims) {
    if (claim.target != mount.target) continue;
    if (claim.volume.name == mount.volume.name && claim.usage == mount.usage) continue;
    const auto mounted = co_await mounter.manager().is_mount(claim.target, mounter.within(timeout_s));
    if (!mounted) co_return mounted.error();
    if (*mounted) continue;
    if (auto ended = co_await mounter.manager().unmount(claim.target, mounter.within(timeout_s)); !ended)
      co_return ended.error();
  }
  co_return result<>();
}

task<result<std::string>> mount_one(Mounter& mounter, Mounts::Wish wish, int timeout_s) {
  auto mount = mount_of(wish);
  if (!mount) co_return mount.error();
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  if (auto checked = check_image_name(*claims, mount->volume); !checked) co_return checked.error();
  if (auto ended = co_await end_old_claim(mounter, *claims, *mount, timeout_s); !ended) co_return ended.error();
  const std::string name = mount->volume.name;
  const std::string id = mount->volume.external_id;
  const auto claim = co_await mounter.manager().mount(std::move(*mount), mounter.within(timeout_s));
  if (!claim && claim.error().code == errc::timed_out)
    co_return Error{errc::timed_out,
                    claim.error().text + ". `corbd volume " + id +
                        "` and the agent's log say what it waits for; a longer --timeout waits longer"};
  if (!claim) co_return claim.error();
  co_return name + " is mounted at " + claim->target;
}

task<result<std::string>> unmount_one(Mounter& mounter, std::string dir, int timeout_s) {
  const auto done = co_await mounter.manager().unmount(dir, mounter.within(timeout_s));
  if (!done) co_return done.error();
  co_return dir + " is unmounted";
}

struct Task {
  std::string what;  ///< for errors: the file, or the target
  result<Mounts::Wish> wish;
  bool unmount = false;  ///< it was begun before
};

/// Files first. A claim that no file names was mounted by hand.
task<result<std::vector<Task>>> all_tasks(Mounter& mounter, const Mounts& ask) {
  std::vector<Task> tasks;
  std::vector<std::string> named;
  for (auto& file : read_mount_files(ask.mounts_dir)) {
    if (file.wish) named.push_back(std::filesystem::path(file.wish->dir).lexically_normal());
    tasks.push_back({file.path, std::move(file.wish)});
  }
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  for (const auto& claim : *claims) {
    if (std::ranges::find(named, claim.target) != named.end()) continue;
    const bool leaves = claim.phase == manager::Claim::Phase::unmounting || !uses(claim);
    tasks.push_back({claim.target, wish_of(claim), leaves});
  }
  co_return tasks;
}

struct Results {
  int failed = 0;
};

task<> one_of_all(Mounter& mounter, Task one, Slots& slots, Results& results, int timeout_s) {
  const auto slot = co_await slots.take({});
  auto done = result<std::string>(one.wish ? Error() : one.wish.error());
  if (one.wish && one.unmount) done = co_await unmount_one(mounter, one.wish->dir, timeout_s);
  if (one.wish && !one.unmount) done = co_await mount_one(mounter, *one.wish, timeout_s);
  if (done) {
    std::cout << *done << std::endl;
    co_return;
  }
  ++results.failed;
  complain(one.what + ": " + done.error().text);
}

task<result<Results>> mount_all(Mounter& mounter, const Mounts& ask) {
  auto tasks = co_await all_tasks(mounter, ask);
  if (!tasks) co_return tasks.error();
  Slots slots(mounter.control(), mounter.clock(), "mounts", static_cast<std::size_t>(ask.parallel));
  Gate gate(mounter.control(), mounter.clock());
  Results results;
  for (auto& one : *tasks) gate.spawn(one_of_all(mounter, std::move(one), slots, results, ask.timeout_s));
  co_await gate.close({});
  co_return results;
}

int list_mounts(Mounter& mounter, const Mounts& ask) {
  const auto held = mounter.run(mounter.manager().list(mounter.within(ask.timeout_s)));
  if (!held) return complain(held.error().text);
  std::cout << (ask.output == "json" ? boost::json::serialize(mounts_json(*held)) + "\n" : mounts_table(*held))
            << std::flush;
  return kDone;
}

int act(Mounter& mounter, const Mounts& ask) {
  if (ask.what == Mounts::What::mount && ask.all) {
    const auto done = mounter.run(mount_all(mounter, ask));
    if (!done) return complain(done.error().text);
    return done->failed == 0 ? kDone : kFailed;
  }
  const auto done = ask.what == Mounts::What::mount ? mounter.run(mount_one(mounter, ask.wish, ask.timeout_s))
                                                    : mounter.run(unmount_one(mounter, ask.wish.dir, ask.timeout_s));
  if (!done) return complain(done.error().text);
  std::cout << *done << std::endl;
  return kDone;
}

/// From the shell's folder. The manager resolves links.
std::string absolute(const std::string& dir) {
  std::error_code failed;
  const auto made = std::filesystem::absolute(dir, failed).lexically_normal();
  return failed ? dir : made.string();
}

}  // namespace

int call_mounts(const Mounts& given) {
  Mounts ask = given;
  const bool needs_dir = ask.what == Mounts::What::unmount || (ask.what == Mounts::What::mount && !ask.all);
  if (needs_dir && (ask.wish.dir.empty() || (ask.what == Mounts::What::mount && ask.wish.image.empty())))
    return complain("corbd mount needs an image and a folder, `corbd mount rbd/db /srv/db`, or --all");
  if (!ask.wish.dir.empty()) ask.wish.dir = absolute(ask.wish.dir);
  if (ask.write_unit) {
    std::error_code failed;
    const auto program = std::filesystem::canonical("/proc/self/exe", failed);
    std::cout << unit_of(ask, failed ? "/usr/bin/corbd" : program.string()) << std::flush;
    return kDone;
  }
  for (const auto& folder : {ask.root, ask.runtime_dir})
    if (auto made = make_folder(folder, 0700); !made) return complain(made.error().text);
  Mounter mounter(ask);
  if (ask.what == Mounts::What::list) return list_mounts(mounter, ask);
  if (ask.wait) {
    const auto ready = mounter.run(mounter.manager().wait_ready(mounter.within(ask.timeout_s)));
    if (!ready) return complain(ready.error().text), kNoPlugin;
  } else if (const auto there = rpc::answers(ask.endpoint); !there) {
    complain(there.error().text +
             ". Start the agent (`systemctl start corbd`, or `corbd run --standalone`), wait for "
             "it with --wait, or name another --endpoint");
    return kNoPlugin;
  }
  return act(mounter, ask);
}

}  // namespace corbd::cli
