#include "world.hpp"

#include <algorithm>

namespace corbd::test {
namespace {

/// Every port call passes here: before it has its effect, and after that.
std::optional<Error> passes(World& world, Fault::When when) {
  const int number = when == Fault::When::before ? world.made++ : world.made - 1;
  if (number != world.fault_at || world.fault.when != when) return std::nullopt;
  if (!world.fault.error) throw Crash();
  return world.fault.error;
}

template <class T>
result<T> around(World& world, const std::function<result<T>()>& effect) {
  if (auto error = passes(world, Fault::When::before)) return *error;
  auto done = effect();
  if (auto error = passes(world, Fault::When::after)) return *error;
  return done;
}

}  // namespace

class Process::FakePlugin final : public manager::Plugin {
 public:
  explicit FakePlugin(World& world) : world_(world) {}
  task<result<Info>> info(Until) override {
    co_return call<Info>("info", [this]() -> result<Info> { return Info{world_.plugin_name, "1"}; });
  }
  task<result<bool>> probe(Until) override {
    co_return call<bool>("probe", [] { return result<bool>(true); });
  }
  task<result<bool>> stages(Until) override {
    co_return call<bool>("stages", [this] { return result<bool>(world_.stages); });
  }
  task<result<>> stage(Mount mount, std::string staging, Until) override {
    co_return call<void>("stage", [this, mount, staging]() -> result<> {
      world_.staged_with = mount;
      if (!world_.folders.contains(staging)) world_.broken.push_back("staged without a folder");
      const std::string place = staging + world_.inside;
      if (!world_.mounts.contains(place)) world_.mounts[place] = "dev" + std::to_string(++world_.devices);
      return {};
    });
  }
  task<result<>> publish(Mount mount, std::string staging, Until) override {
    co_return call<void>("publish", [this, mount, staging]() -> result<> {
      if (world_.stages && !world_.mounts.contains(staging + world_.inside))
        return Error{errc::failed_precondition, "it is not staged"};
      if (world_.publishes_nothing) return {};
      const bool block = mount.usage.attachment == AccessType::block;
      (block ? world_.files : world_.folders).insert(mount.target);
      world_.mounts[mount.target] =
          world_.stages ? world_.mounts.at(staging + world_.inside) : "dev-of-" + mount.volume.external_id;
      return {};
    });
  }
  task<result<>> unpublish(std::string, std::string target, Until) override {
    co_return call<void>("unpublish", [this, target]() -> result<> {
      const bool there = world_.mounts.erase(target) > 0;
      world_.special.erase(target);
      world_.folders.erase(target);
      world_.files.erase(target);
      world_.owners.erase(target);
      if (!there) return Error{errc::not_found, "there is no such volume"};
      return {};
    });
  }
  task<result<>> unstage(std::string, std::string staging, Until) override {
    co_return call<void>("unstage", [this, place = staging + world_.inside]() -> result<> {
      if (!world_.mounts.contains(place)) return Error{errc::not_found, "there is no such volume"};
      for (const auto& [path, device] : world_.mounts)
        if (path != place && device == world_.mounts.at(place)) world_.broken.push_back("unstaged under " + path);
      world_.mounts.erase(place);
      world_.special.erase(place);
      return {};
    });
  }
  task<result<std::uint64_t>> expand(Claim claim, std::string staging, Until) override {
    co_return call<std::uint64_t>("expand", [this, claim, staging]() -> result<std::uint64_t> {
      if (staging != (world_.stages ? claim.staging : std::string())) world_.broken.push_back("expanded at " + staging);
      return world_.image_size;
    });
  }
  task<result<>> stats(std::string, std::string, Until) override {
    co_return call<void>("stats", [] { return result<>(); });
  }

 private:
  template <class T>
  result<T> call(const std::string& name, const std::function<result<T>()>& effect) {
    world_.calls.push_back(name);
    if (world_.plugin_says)
      if (auto error = world_.plugin_says(name)) return *error;
    return around<T>(world_, effect);
  }
  World& world_;
};

class Process::FakeNode final : public manager::Node {
 public:
  explicit FakeNode(World& world) : world_(world) {}
  task<PathState> look(std::string path, manager::Reach reach, Until) override {
    const auto passed = around<void>(world_, [] { return result<>(); });
    if (!passed) co_return PathState{PathState::At::unknown, "", passed.error().text, 0};
    if (reach == manager::Reach::below)
      for (const auto& [mounted, device] : world_.mounts)
        if (mounted.starts_with(path + "/")) path = mounted;
    if (const auto found = world_.special.find(path); found != world_.special.end()) co_return found->second;
    if (const auto found = world_.mounts.find(path); found != world_.mounts.end())
      co_return PathState{PathState::At::mounted, found->second, "", 0};
    const auto owner = world_.owners.find(path);
    const auto at = world_.files.contains(path)     ? PathState::At::file
                    : world_.folders.contains(path) ? PathState::At::folder
                                                    : PathState::At::nothing;
    const auto whose = owner == world_.owners.end() ? manager::Owner() : owner->second;
    co_return PathState{at, "", "", 0750, whose, world_.holding_folder};
  }
  task<result<std::vector<std::string>>> users(std::string target, Until) override { co_return world_.users[target]; }
  task<result<>> make_folder(std::string path, unsigned, Until) override {
    co_return around<void>(world_, [this, path]() -> result<> {
      world_.folders.insert(path);
      return {};
    });
  }
  task<result<>> put_back(std::string path, manager::Before before, Until) override {
    co_return around<void>(world_, [this, path, before]() -> result<> {
      if (before.folder && *before.folder != world_.holding_folder)
        return Error{errc::invalid_argument, "another folder holds it"};
      (before.file ? world_.files : world_.folders).insert(path);
      if (before.owner) world_.owners[path] = *before.owner;
      return {};
    });
  }
  task<result<>> remove_folder(std::string path, std::string, Until) override {
    co_return around<void>(world_, [this, path]() -> result<> {
      if (world_.mounts.contains(path)) return Error{errc::unavailable, "it is a mount point"};
      world_.folders.erase(path);
      return {};
    });
  }
  task<result<std::string>> resolve(std::string path, Until) override {
    for (const auto& [folder, why] : world_.unresolved)
      if (path.starts_with(folder + "/")) co_return why;
    for (const auto& [link, to] : world_.links)
      if (path.starts_with(link + "/")) co_return to + path.substr(link.size());
    co_return path;
  }

 private:
  World& world_;
};

class Process::FakeClaims final : public manager::Claims {
 public:
  explicit FakeClaims(World& world) : world_(world) {}
  task<result<Loaded>> load() override {
    Loaded loaded;
    for (const auto& [target, claim] : world_.claims) loaded.claims.push_back(claim);
    co_return loaded;
  }
  task<result<>> save(Claim claim) override {
    co_return around<void>(world_, [this, claim]() -> result<> {
      world_.claims[claim.target] = claim;
      return {};
    });
  }
  task<result<>> drop(std::string target) override {
    co_return around<void>(world_, [this, target]() -> result<> {
      world_.claims.erase(target);
      return {};
    });
  }

 private:
  World& world_;
};

class Process::Ear final : public manager::Listener {
 public:
  explicit Ear(std::vector<manager::Event>& heard) : heard_(heard) {}
  void heard(const manager::Event& event) override { heard_.push_back(event); }

 private:
  std::vector<manager::Event>& heard_;
};

Process::Process(World& world)
    : plugin_(std::make_unique<FakePlugin>(world)),
      node_(std::make_unique<FakeNode>(world)),
      claims_(std::make_unique<FakeClaims>(world)),
      ear_(std::make_unique<Ear>(heard)) {
  manager::Config config;
  config.root = kRoot;
  config.locks_dir = locks_.path();
  config.boot_id = world.boot_id;
  config.jitter = repeatable_jitter(1);
  manager_ = std::make_unique<manager::Manager>(loop_.control(), loop_.clock,
                                                manager::Ports{*plugin_, *node_, *claims_}, config);
  manager_->tell(*ear_);
}

Process::~Process() = default;

result<Claim> Process::mount(Mount mount, Until until) { return loop_.run(manager_->mount(std::move(mount), until)); }

result<> Process::unmount(const std::string& target, Until until) {
  return loop_.run(manager_->unmount(target, until));
}

}  // namespace corbd::test
