#include "corbd/core/display.hpp"
#include "corbd/mounting/spec.hpp"
#include "work.hpp"

namespace corbd::mounting {
namespace {

/// Ends a claim of another volume or usage at the target, if nothing is mounted there: its file was edited, and then
/// the host rebooted. Returns the claim that stays because something is mounted there, if any.
task<result<std::optional<manager::Claim>>> end_old_claim(Mounter& mounter, std::vector<manager::Claim> claims,
                                                          manager::Mount mount, Until until) {
  std::optional<manager::Claim> stays;
  for (auto& claim : claims) {
    if (claim.target != mount.target || (same_volume(claim, mount) && claim.usage == mount.usage)) continue;
    const auto ended = co_await mounter.manager().end_unmounted(claim.target, until);
    // Another command may have ended it, or mounted there: the mount judges that.
    const bool judged =
        ended || ended.error().code == errc::not_found || ended.error().code == errc::failed_precondition;
    if (!judged) co_return ended.error();
    if (!ended && ended.error().code == errc::failed_precondition) stays = std::move(claim);
  }
  co_return stays;
}

std::string joined_options(const std::vector<std::string>& options) {
  std::string all;
  for (const auto& option : options) all += (all.empty() ? "" : ",") + option;
  return all.empty() ? "none" : all;
}

}  // namespace

task<result<std::string>> mount_one(Mounter& mounter, MountSpec spec, Until until, Keeps keeps) {
  auto mount = mount_of(spec);
  if (!mount) co_return mount.error();
  auto target = co_await mounter.manager().name_of(mount->target, until);
  if (!target) co_return target.error();
  mount->target = std::move(*target);
  const auto claims = co_await mounter.manager().claims();
  if (!claims) co_return claims.error();
  const auto other = co_await end_old_claim(mounter, *claims, *mount, until);
  if (!other) co_return other.error();
  const auto asked = mount->usage.mount_options;
  if (*other && keep_mounted(*mount, **other, keeps) && asked != mount->usage.mount_options)
    complain(mount->target + " is mounted with other options, and keeps them until it is unmounted: " +
             joined_options((*other)->usage.mount_options) + " instead of " + joined_options(asked));
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

task<result<std::string>> expand_one(Mounter& mounter, std::string dir, Until until) {
  const auto size = co_await mounter.manager().expand(dir, until);
  if (!size) co_return size.error();
  // A plugin need not report the size.
  co_return dir + (*size == 0 ? " has the size of its image" : " has " + size_text(*size));
}

}  // namespace corbd::mounting
