#include "corbd/manager/manager.hpp"

#include <algorithm>

#include "corbd/core/gate.hpp"
#include "corbd/core/log.hpp"
#include "locks.hpp"
#include "operation.hpp"
#include "policy_parts.hpp"

namespace corbd::manager {
namespace {

constexpr std::chrono::seconds kProbe{5};  ///< Nomad's limit for a Probe
constexpr Backoff kReadyAgain{std::chrono::milliseconds(100), std::chrono::seconds(2)};

Error both(Error first, const Error& undo) {
  first.text +=
      "; and it could not be taken back: " + undo.text + ". It stays claimed: repeat the mount or the unmount";
  return first;
}

}  // namespace

class Manager::Impl {
 public:
  Impl(executor control, Clock& clock, Ports ports, Config config)
      : base_{control, clock, ports, std::move(config)}, gate_(control, clock) {}

  void tell(Listener& listener) { base_.listener = &listener; }
  const Health& health() const { return health_; }
  void start() { gate_.spawn(watch()); }
  task<> stop(Until until) {
    stopping_.cancel();
    co_await gate_.close(until);
  }

  task<result<>> wait_ready(Until until) {
    std::string problem;
    for (std::uint32_t failures = 0;; ++failures) {
      co_await look(until);
      if (health_.ready) co_return result<>();
      const auto now = base_.clock.now();
      // The last check has too little time to learn anything.
      if (problem.empty() || now < until.deadline) problem = health_.problem;
      if (now >= until.deadline) co_return Error{errc::timed_out, "the plugin is not ready: " + problem};
      const auto at = std::min(now + kReadyAgain.after(failures, base_.config.jitter()), until.deadline);
      if (co_await sleep_until(base_.control, base_.clock, at, until.scope) == Waited::cancelled)
        co_return Error{errc::cancelled, "gave up waiting for the plugin: " + problem};
    }
  }

  task<result<Claim>> mount(Mount wanted, Until until) {
    if (auto checked = co_await complete(wanted, until); !checked) co_return checked.error();
    const std::string id = wanted.volume.external_id, target = wanted.target;
    const auto target_lock = co_await lock("target\n" + target, target, until);
    if (!target_lock) co_return target_lock.error();
    const auto volume_lock = co_await lock_volume(wanted.volume, until);
    if (!volume_lock) co_return volume_lock.error();
    if (auto checked = co_await check_folder(wanted, until); !checked) co_return checked.error();
    MountRun operation(base_, {Goal::What::mount, std::move(wanted)}, target, until);
    auto done = co_await operation.run();
    if (!done) {
      Error error = done.error();
      const auto undone = co_await operation.undo({base_.clock.now() + base_.config.undo});
      if (!undone) error = both(error, undone.error());
      base_.say({Event::What::mounted, id, target, false, error.text});
      co_return error;
    }
    base_.say({Event::What::mounted, id, target, true, "mounted at " + target});
    co_return *operation.claim();
  }

  /// `what`: unmount or set_down.
  task<result<>> take_down(std::string target, Goal::What what, bool only_unmounted, Until until) {
    const auto known = co_await lock_claim(target, until);
    if (!known) co_return known.error();
    if (only_unmounted) {
      const auto sight = co_await look_at(target, until);
      if (!sight) co_return sight.error();
      if (sight->is_mount()) co_return Error{errc::failed_precondition, sight->mount + " is mounted at " + target};
    }
    MountRun operation(base_, {what, {}}, target, until);
    auto done = co_await operation.run();
    base_.say({Event::What::unmounted, known->claim.volume.external_id, target, done.has_value(),
               done ? "unmounted from " + target : done.error().text});
    co_return done;
  }

  task<result<bool>> refresh(Mount wanted, Until until) {
    auto known = co_await lock_claim(wanted.target, until);
    if (!known && known.error().code == errc::not_found) co_return false;
    if (!known) co_return known.error();
    wanted.volume.plugin = known->claim.volume.plugin;
    if (wanted.volume.name.empty()) wanted.volume.name = wanted.volume.external_id;
    const std::string named = wanted.target;
    MountRun operation(base_, {Goal::What::refresh, std::move(wanted)}, named, until);
    if (auto done = co_await operation.run(); !done) co_return done.error();
    co_return operation.staged();
  }

  task<result<std::uint64_t>> expand(std::string target, Until until) {
    const auto known = co_await lock_claim(target, until);
    if (!known) co_return known.error();
    Goal wish{Goal::What::expand, {}};
    wish.mount.target = target;
    MountRun operation(base_, std::move(wish), target, until);
    if (auto done = co_await operation.run(); !done) co_return done.error();
    co_return operation.capacity();
  }

  task<result<std::vector<Claim>>> claims() {
    auto loaded = co_await base_.ports.claims.load();
    if (!loaded) co_return loaded.error();
    co_return std::move(loaded->claims);
  }

  task<result<std::vector<Held>>> list(Until until) {
    auto known = co_await claims();
    if (!known) co_return known.error();
    std::vector<Held> all;
    for (auto& claim : *known) {
      PathState sight = co_await base_.ports.node.look(claim.target, Reach::here,
                                                       until.at_most(base_.clock.now() + base_.config.look));
      const bool another = is_anothers(claim, sight);
      all.push_back({std::move(claim), std::move(sight), another});
    }
    co_return all;
  }

  task<result<bool>> has_mount(std::string target, Until until) {
    if (auto named = co_await name_of_target(target, until); !named) co_return named.error();
    const auto claim = co_await find(target);
    if (!claim && claim.error().code == errc::not_found) co_return false;
    if (!claim) co_return claim.error();
    const auto sight = co_await look_at(target, until);
    if (!sight) co_return sight.error();
    co_return sight->at == PathState::At::mounted && !is_anothers(*claim, *sight);
  }

  task<result<std::string>> resolved(std::string target, Until until) {
    if (auto done = co_await resolve(target, until); !done) co_return done.error();
    co_return target;
  }

  task<result<std::string>> name_of(std::string target, Until until) {
    if (auto named = co_await name_of_target(target, until); !named) co_return named.error();
    co_return target;
  }

 private:
  bool is_anothers(const Claim& claim, const PathState& sight) const {
    return sight.is_mount() && whose_by_claim(claim, sight, base_.config.boot_id) == Whose::another;
  }
  /// Looks at a path, and makes an unknown state an error.
  task<result<PathState>> look_at(std::string path, Until until) {
    PathState sight =
        co_await base_.ports.node.look(path, Reach::here, until.at_most(base_.clock.now() + base_.config.look));
    if (sight.at == PathState::At::unknown)
      co_return Error{errc::unavailable, "cannot tell whether " + path + " is mounted: " + sight.text};
    co_return sight;
  }

  task<result<Claim>> find(std::string target) {
    auto known = co_await claims();
    if (!known) co_return known.error();
    for (auto& claim : *known)
      if (claim.target == target) co_return std::move(claim);
    co_return Error{errc::not_found, "nothing was mounted at " + target + " through a plugin"};
  }

  /// Reduces all paths of a target to one name, whatever links lead to it.
  task<result<>> resolve(std::string& target, Until until) {
    if (target.starts_with(base_.config.root + "/")) co_return result<>();
    auto real = co_await base_.ports.node.resolve(target, until.at_most(base_.clock.now() + base_.config.look));
    if (!real) co_return real.error();
    target = std::move(*real);
    co_return result<>();
  }

  /// Finds the name of a target that may have a claim. A name in a claim's own spelling is not resolved: a parent may
  /// have become a link since the mount.
  task<result<>> name_of_target(std::string& target, Until until) {
    const auto spelled = co_await find(target);
    if (spelled) co_return result<>();
    if (spelled.error().code != errc::not_found) co_return spelled.error();
    co_return co_await resolve(target, until);
  }

  task<result<>> name_plugin(PluginVolume& volume, Until until) {
    const auto info = co_await repeat<Plugin::Info>(
        base_, [this](Until one) { return base_.ports.plugin.info(one); }, "asking the plugin for its name",
        {Event::What::progress, volume.external_id, "", true, ""}, until);
    if (!info) co_return info.error();
    if (!volume.plugin.empty() && volume.plugin != info->name)
      co_return Error{errc::failed_precondition,
                      "this socket belongs to the plugin " + info->name + ", not to " + volume.plugin};
    volume.plugin = info->name;
    co_return result<>();
  }

  task<result<>> check_plugin(const Claim& claim, Until until) {
    PluginVolume here = claim.volume;
    here.plugin.clear();
    if (auto named = co_await name_plugin(here, until); !named) co_return named.error();
    if (here.plugin == claim.volume.plugin) co_return result<>();
    co_return Error{errc::failed_precondition, claim.target + " was mounted through the plugin " + claim.volume.plugin +
                                                   ", and this socket belongs to " + here.plugin +
                                                   ": give the socket of " + claim.volume.plugin};
  }

  task<result<>> complete(Mount& wanted, Until until) {
    if (wanted.volume.external_id.empty()) co_return Error{errc::invalid_argument, "the volume has no id"};
    if (wanted.volume.name.empty()) wanted.volume.name = wanted.volume.external_id;
    if (wanted.target.empty() && wanted.user.empty())
      co_return Error{errc::invalid_argument, "neither a target nor a user was given"};
    if (wanted.target.empty()) wanted.target = default_target(base_.config.root, wanted);
    if (auto named = co_await name_of_target(wanted.target, until); !named) co_return named.error();
    co_return co_await name_plugin(wanted.volume, until);
  }

  /// Refuses a second claim of a volume for one folder. A parent may have become a link since the first mount, and lead
  /// here now.
  task<result<>> check_folder(const Mount& wanted, Until until) {
    const auto known = co_await claims();
    if (!known) co_return known.error();
    if (std::ranges::find(*known, wanted.target, &Claim::target) != known->end()) co_return result<>();
    for (const auto& claim : *known) {
      const auto& volume = claim.volume;
      if (volume.external_id != wanted.volume.external_id || volume.plugin != wanted.volume.plugin) continue;
      std::string folder = claim.target;
      const auto resolved = co_await resolve(folder, until);
      // Ignore this error: the owner of a parent of that claim could put a link there that is never followed, or a
      // filesystem that does not answer. Neither may keep the volume away from here.
      if (!resolved && resolved.error().code != errc::not_found)
        log::warning("manager.claim_not_resolved", {{"target", claim.target}, {"error", resolved.error().text}});
      if (!resolved) continue;
      if (folder == wanted.target)
        co_return Error{errc::already_exists, "the volume is claimed at " + claim.target + ", which leads to " +
                                                  folder +
                                                  " through a symbolic link made since: put the folder back in the "
                                                  "place of the link, and mount and unmount at " +
                                                  claim.target};
    }
    co_return result<>();
  }

  task<result<FileLock>> lock(std::string what, std::string shown, Until until) {
    return lock_file(base_.control, base_.clock, base_.config.locks_dir, std::move(what), std::move(shown), until);
  }
  /// Locks by the external id: two names of one volume are one volume to its plugin.
  task<result<FileLock>> lock_volume(const PluginVolume& volume, Until until) {
    return lock("volume\n" + volume.plugin + "\n" + volume.external_id, "volume " + volume.external_id, until);
  }

  struct Locked {
    Claim claim;
    FileLock target, volume;
  };
  /// Returns the claim at the target, once nobody else works on either; `target` becomes its one name. not_found: there
  /// is none.
  task<result<Locked>> lock_claim(std::string& target, Until until) {
    if (auto named = co_await name_of_target(target, until); !named) co_return named.error();
    auto target_lock = co_await lock("target\n" + target, target, until);
    if (!target_lock) co_return target_lock.error();
    auto claim = co_await find(target);
    if (!claim) co_return claim.error();
    if (auto same = co_await check_plugin(*claim, until); !same) co_return same.error();
    auto volume_lock = co_await lock_volume(claim->volume, until);
    if (!volume_lock) co_return volume_lock.error();
    co_return Locked{std::move(*claim), std::move(*target_lock), std::move(*volume_lock)};
  }

  task<> watch() {
    while (!stopping_.cancelled()) {
      co_await look({time_point::max(), &stopping_});
      co_await sleep_until(base_.control, base_.clock, base_.clock.now() + base_.config.period, &stopping_);
    }
  }

  /// Asks once. The plugin's last answers stay known while it does not answer.
  task<> look(Until until) {
    Health now = health_;
    if (auto asked = co_await ask(now, until); !asked) {
      now.ready = false;
      now.problem = asked.error().text;
    }
    if (stopping_.cancelled() || now == health_) co_return;
    const bool turned = now.ready != health_.ready;
    health_ = std::move(now);
    if (turned)
      base_.say({Event::What::plugin, health_.name, "", health_.ready, health_.ready ? "is ready" : health_.problem});
  }

  task<result<>> ask(Health& now, Until until) {
    const auto ready = co_await base_.ports.plugin.probe(until.at_most(base_.clock.now() + kProbe));
    if (!ready) co_return ready.error();
    if (!*ready) co_return Error{errc::unavailable, "it answers that it is not ready yet"};
    auto info = co_await base_.ports.plugin.info(until.at_most(base_.clock.now() + kProbe));
    if (!info) co_return info.error();
    const auto stages = co_await base_.ports.plugin.stages(until.at_most(base_.clock.now() + kProbe));
    if (!stages) co_return stages.error();
    now = {true, std::move(info->name), std::move(info->version), *stages, ""};
    co_return result<>();
  }

  Base base_;
  Health health_;
  CancelScope stopping_;
  Gate gate_;
};

Manager::Manager(executor control, Clock& clock, Ports ports, Config config)
    : impl_(std::make_unique<Impl>(std::move(control), clock, ports, std::move(config))) {}
Manager::~Manager() = default;
void Manager::tell(Listener& listener) { impl_->tell(listener); }
void Manager::start() { impl_->start(); }
task<> Manager::stop(Until until) { return impl_->stop(until); }
const Health& Manager::health() const { return impl_->health(); }
task<result<>> Manager::wait_ready(Until until) { return impl_->wait_ready(until); }
task<result<Claim>> Manager::mount(Mount wanted, Until until) { return impl_->mount(std::move(wanted), until); }
task<result<>> Manager::unmount(std::string target, Until until) {
  return impl_->take_down(std::move(target), Goal::What::unmount, false, until);
}
task<result<>> Manager::set_down(std::string target, Until until) {
  return impl_->take_down(std::move(target), Goal::What::set_down, false, until);
}
task<result<>> Manager::end_unmounted(std::string target, Until until) {
  return impl_->take_down(std::move(target), Goal::What::unmount, true, until);
}
task<result<bool>> Manager::refresh(Mount wanted, Until until) { return impl_->refresh(std::move(wanted), until); }
task<result<std::uint64_t>> Manager::expand(std::string target, Until until) {
  return impl_->expand(std::move(target), until);
}
task<result<std::vector<Claim>>> Manager::claims() { return impl_->claims(); }
task<result<std::string>> Manager::resolve(std::string target, Until until) {
  return impl_->resolved(std::move(target), until);
}
task<result<std::string>> Manager::name_of(std::string target, Until until) {
  return impl_->name_of(std::move(target), until);
}
task<result<std::vector<Manager::Held>>> Manager::list(Until until) { return impl_->list(until); }
task<result<bool>> Manager::has_mount(std::string target, Until until) {
  return impl_->has_mount(std::move(target), until);
}

}  // namespace corbd::manager
