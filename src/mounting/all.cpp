#include <iostream>

#include "corbd/core/gate.hpp"
#include "corbd/mounting/spec.hpp"
#include "work.hpp"

namespace corbd::mounting {

task<result<std::vector<Task>>> all_tasks(Mounter& mounter, const Options& ask, Until until) {
  std::vector<Task> tasks;
  std::vector<std::string> named;
  for (auto& file : read_mount_files(ask.mounts_dir)) {
    if (file.spec) {
      // Use the claims' names. A name that cannot be resolved cannot be mounted, and its mount says why.
      auto dir = co_await mounter.manager().name_of(file.spec->dir, until);
      if (dir) file.spec->dir = std::move(*dir);
      named.push_back(file.spec->dir);
    }
    tasks.push_back({file.path, std::move(file.spec)});
  }
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  for (const auto& claim : *claims) {
    if (std::ranges::find(named, claim.target) != named.end()) continue;
    const bool leaves = !claim.again && (claim.phase == manager::Claim::Phase::unmounting || !uses(claim));
    auto spec = spec_of(claim);
    spec.dir = claim.target;
    tasks.push_back({claim.target, std::move(spec), leaves});
  }
  co_return tasks;
}

task<result<Slots::Guard>> take_turn(Slots& slots, Until until) {
  auto slot = co_await slots.take(until);
  if (slot || slot.error().code == errc::cancelled) co_return slot;
  co_return Error{errc::timed_out, "it did not begin within --timeout, which earlier mounts used up"};
}

namespace {

task<> one_of_all(Mounter& mounter, Task one, Slots& slots, Results& results, Until until) {
  const auto slot = co_await take_turn(slots, until);
  auto done = result<std::string>(one.spec ? Error() : one.spec.error());
  if (one.spec && !slot)
    done = slot.error();
  else if (one.spec && one.unmount)
    done = co_await unmount_one(mounter, one.spec->dir, until);
  else if (one.spec)
    done = co_await mount_one(mounter, *one.spec, until);
  if (done) {
    std::cout << *done << std::endl;
    co_return;
  }
  ++results.failed;
  complain(one.what + ": " + done.error().text);
}

}  // namespace

task<result<Results>> mount_all(Mounter& mounter, const Options& ask, Until until) {
  auto tasks = co_await all_tasks(mounter, ask, until);
  if (!tasks) co_return tasks.error();
  Slots slots(mounter.control(), mounter.clock(), "mounts", static_cast<std::size_t>(ask.parallel));
  Gate gate(mounter.control(), mounter.clock());
  Results results;
  for (auto& one : *tasks) gate.spawn(one_of_all(mounter, std::move(one), slots, results, until));
  co_await gate.close({});
  co_return results;
}

namespace {

constexpr std::chrono::seconds kInUseAgain{1};

task<result<bool>> is_claimed(Mounter& mounter, const std::string& target) {
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  co_return std::ranges::find(*claims, target, &manager::Claim::target) != claims->end();
}

/// Retries until the limit: at a shutdown the mount's users are still ending, or another mount lies upon it.
task<result<>> set_down_one(Mounter& mounter, std::string target, Slots& slots, Until until) {
  for (bool told = false;; told = true) {
    result<> done;
    {
      const auto slot = co_await slots.take(until);
      if (!slot) co_return slot.error();
      done = co_await mounter.manager().set_down(target, until);
    }
    if (!done && done.error().code == errc::not_found) {
      const auto claimed = co_await is_claimed(mounter, target);
      // Another command unmounted it first.
      if (claimed && !*claimed) co_return result<>();
    }
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

}  // namespace

task<result<Results>> unmount_all(Mounter& mounter, const Options& ask, Until until) {
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  Slots slots(mounter.control(), mounter.clock(), "unmounts", static_cast<std::size_t>(ask.parallel));
  Gate gate(mounter.control(), mounter.clock());
  Results results;
  for (const auto& claim : *claims) gate.spawn(one_of_set_down(mounter, claim.target, slots, results, until));
  co_await gate.close({});
  co_return results;
}

}  // namespace corbd::mounting
