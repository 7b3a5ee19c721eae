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

/// A claim of another volume or usage at the target ends, if nothing is mounted there: its file was edited, and then
/// the host rebooted.
task<result<>> end_old_claim(Mounter& mounter, std::vector<manager::Claim> claims, manager::Mount mount, Until until) {
  for (const auto& claim : claims) {
    if (claim.target != mount.target) continue;
    const bool same = claim.volume.name == mount.volume.name && claim.usage == mount.usage &&
                      claim.volume_context == mount.volume_context;
    if (same) continue;
    auto ended = co_await mounter.manager().end_unmounted(claim.target, until);
    // Another command may have ended it, or mounted there: the mount judges that.
    const bool judged =
        ended || ended.error().code == errc::not_found || ended.error().code == errc::failed_precondition;
    if (!judged) co_return ended;
  }
  co_return result<>();
}

task<result<std::string>> mount_one(Mounter& mounter, Mounts::Wish wish, Until until) {
  auto mount = mount_of(wish);
  if (!mount) co_return mount.error();
  auto target = co_await mounter.manager().resolve(mount->target, until);
  if (!target) co_return target.error();
  mount->target = std::move(*target);
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  if (auto ended = co_await end_old_claim(mounter, *claims, *mount, until); !ended) co_return ended.error();
  const std::string name = mount->volume.name;
  const std::string id = mount->volume.external_id;
  const auto claim = co_await mounter.manager().mount(std::move(*mount), until);
  if (!claim && claim.error().code == errc::timed_out)
    co_return Error{errc::timed_out,
                    claim.error().text + ". `corbd volume " + id +
                        "` and the agent's log say what it waits for; a longer --timeout waits longer"};
  if (!claim) co_return claim.error();
  co_return name + " is mounted at " + claim->target;
}

task<result<std::string>> unmount_one(Mounter& mounter, std::string dir, Until until) {
  const auto done = co_await mounter.manager().unmount(dir, until);
  if (!done) co_return done.error();
  co_return dir + " is unmounted";
}

struct Task {
  std::string what;  ///< for errors: the file, or the target
  result<Mounts::Wish> wish;
  bool unmount = false;  ///< it was begun before
};

/// Files first. A claim that no file names was mounted by hand.
task<result<std::vector<Task>>> all_tasks(Mounter& mounter, const Mounts& ask, Until until) {
  std::vector<Task> tasks;
  std::vector<std::string> named;
  for (auto& file : read_mount_files(ask.mounts_dir)) {
    if (file.wish) {
      // As claims have it. What cannot be resolved cannot be mounted, and its mount says why.
      auto dir = co_await mounter.manager().resolve(file.wish->dir, until);
      if (dir) file.wish->dir = std::move(*dir);
      named.push_back(file.wish->dir);
    }
    tasks.push_back({file.path, std::move(file.wish)});
  }
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  for (const auto& claim : *claims) {
    if (std::ranges::find(named, claim.target) != named.end()) continue;
    const bool leaves = !claim.again && (claim.phase == manager::Claim::Phase::unmounting || !uses(claim));
    tasks.push_back({claim.target, wish_of(claim), leaves});
  }
  co_return tasks;
}

struct Results {
  int failed = 0;
};

task<> one_of_all(Mounter& mounter, Task one, Slots& slots, Results& results, Until until) {
  const auto slot = co_await slots.take(until);
  auto done = result<std::string>(one.wish ? Error() : one.wish.error());
  if (one.wish && !slot)
    done = slot.error().code == errc::cancelled
               ? slot.error()
               : Error{errc::timed_out, "it was not begun within --timeout, which the mounts before it used up"};
  else if (one.wish && one.unmount)
    done = co_await unmount_one(mounter, one.wish->dir, until);
  else if (one.wish)
    done = co_await mount_one(mounter, *one.wish, until);
  if (done) {
    std::cout << *done << std::endl;
    co_return;
  }
  ++results.failed;
  complain(one.what + ": " + done.error().text);
}

task<result<Results>> mount_all(Mounter& mounter, const Mounts& ask, Until until) {
  auto tasks = co_await all_tasks(mounter, ask, until);
  if (!tasks) co_return tasks.error();
  Slots slots(mounter.control(), mounter.clock(), "mounts", static_cast<std::size_t>(ask.parallel));
  Gate gate(mounter.control(), mounter.clock());
  Results results;
  for (auto& one : *tasks) gate.spawn(one_of_all(mounter, std::move(one), slots, results, until));
  co_await gate.close({});
  co_return results;
}

constexpr std::chrono::seconds kInUseAgain{1};

/// Until the limit: at a shutdown, whoever uses the mount is ending, or another mount lies upon it.
task<result<>> set_down_one(Mounter& mounter, std::string target, Slots& slots, Until until) {
  for (bool told = false;; told = true) {
    result<> done;
    {
      const auto slot = co_await slots.take(until);
      if (!slot) co_return slot.error();
      done = co_await mounter.manager().set_down(target, until);
    }
    // Another command was faster.
    if (!done && done.error().code == errc::not_found) co_return result<>();
    if (done || done.error().code == errc::cancelled) co_return done;
    const auto next = mounter.clock().now() + kInUseAgain;
    if (next >= until.deadline) co_return done;
    if (!told) complain(target + ": " + done.error().text + "; trying again");
    if (co_await sleep_until(mounter.control(), mounter.clock(), next, until.scope) == Waited::cancelled)
      co_return done;
  }
}

task<> one_of_set_down(Mounter& mounter, std::string target, Slots& slots, Results& results, Until until) {
  const auto done = co_await set_down_one(mounter, target, slots, until);
  if (done) {
    std::cout << target << " is unmounted" << std::endl;
    co_return;
  }
  ++results.failed;
  complain(target + " is not unmounted: " + done.error().text);
}

task<result<Results>> unmount_all(Mounter& mounter, const Mounts& ask, Until until) {
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  Slots slots(mounter.control(), mounter.clock(), "unmounts", static_cast<std::size_t>(ask.parallel));
  Gate gate(mounter.control(), mounter.clock());
  Results results;
  for (const auto& claim : *claims) gate.spawn(one_of_set_down(mounter, claim.target, slots, results, until));
  co_await gate.close({});
  co_return results;
}

int list_mounts(Mounter& mounter, const Mounts& ask) {
  const auto held = mounter.run(mounter.manager().list(mounter.within(limit_of(ask))));
  if (!held) return complain(held.error().text);
  std::cout << (ask.output == "json" ? boost::json::serialize(mounts_json(*held)) + "\n" : mounts_table(*held))
            << std::flush;
  return kDone;
}

/// `until`: for all of them.
int act(Mounter& mounter, const Mounts& ask, Until until) {
  if (ask.all) {
    const auto done = mounter.run(ask.what == Mounts::What::mount ? mount_all(mounter, ask, until)
                                                                  : unmount_all(mounter, ask, until));
    if (!done) return complain(done.error().text);
    return done->failed == 0 ? kDone : kFailed;
  }
  const auto done = ask.what == Mounts::What::mount
                        ? mounter.run(mount_one(mounter, ask.wish, mounter.within(limit_of(ask))))
                        : mounter.run(unmount_one(mounter, ask.wish.dir, mounter.within(limit_of(ask))));
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

/// What makes no sense together; empty if nothing.
std::string wrong_with(const Mounts& ask) {
  const bool mounts = ask.what == Mounts::What::mount;
  if (ask.what == Mounts::What::list) return "";
  if (ask.all && (!ask.wish.image.empty() || !ask.wish.dir.empty() || ask.write_unit))
    return mounts ? "--all takes neither an image, nor a folder, nor --write-unit"
                  : "--all takes no folder: it unmounts all";
  if (ask.all) return "";
  if (mounts && (ask.wish.image.empty() || ask.wish.dir.empty()))
    return "corbd mount needs an image and a folder, `corbd mount rbd/db /srv/db`, or --all";
  return ask.wish.dir.empty() ? "corbd unmount needs a folder, `corbd unmount /srv/db`, or --all" : "";
}

}  // namespace

int limit_of(const Mounts& ask) {
  constexpr int stop = 80, otherwise = 300;
  if (ask.timeout_s > 0) return ask.timeout_s;
  return ask.all && ask.what == Mounts::What::unmount ? stop : otherwise;
}

int call_mounts(const Mounts& given) {
  Mounts ask = given;
  if (const std::string wrong = wrong_with(ask); !wrong.empty()) return complain(wrong);
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
  const Until until = mounter.within(limit_of(ask));
  if (ask.wait) {
    const auto ready = mounter.run(mounter.manager().wait_ready(until));
    if (!ready) return complain(ready.error().text), kNoPlugin;
  } else if (const auto there = rpc::answers(ask.endpoint); !there) {
    complain(there.error().text +
             ". Start the agent (`systemctl start corbd`, or `corbd run --standalone`), wait for "
             "it with --wait, or name another --endpoint");
    return kNoPlugin;
  }
  return act(mounter, ask, until);
}

}  // namespace corbd::cli
