// A machine and a plugin for the manager's tests. They outlive managers, which may be killed before or after any call.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "corbd/manager/manager.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/loop.hpp"

namespace corbd::test {

using manager::AccessType;
using manager::Claim;
using manager::Mount;
using manager::PathState;

/// How the n-th call of the machine or the plugin goes wrong.
struct Fault {
  enum class When { before, after } when = When::before;
  std::optional<Error> error;  ///< none: the manager is killed
};

class World {
 public:
  std::map<std::string, std::string> mounts;  ///< path to device
  std::map<std::string, PathState> special;   ///< paths that show something else than what is mounted there
  std::set<std::string> folders, files;
  std::map<std::string, manager::Owner> owners;  ///< of both; others are root's
  std::map<std::string, std::string> links;      ///< a folder's path, and where it leads
  std::map<std::string, Error> unresolved;       ///< a folder's path, and why nothing below it is resolved
  FolderIdentity holding_folder = {7, 70};       ///< of every target
  std::map<std::string, Claim> claims;
  std::map<std::string, std::vector<std::string>> users;
  std::vector<std::string> calls;   ///< of the plugin
  Mount staged_with;                ///< by the last stage
  std::vector<std::string> broken;  ///< rules that were broken
  std::function<std::optional<Error>(const std::string& call)> plugin_says;
  std::string inside;  ///< where below the staging path the plugin has its mount; ceph-csi: a folder of the volume's
  bool stages = true, publishes_nothing = false;
  std::string plugin_name = "test.csi.example.com";
  std::string boot_id = "boot-1";
  int fault_at = -1;  ///< which port call has the fault, from 0
  Fault fault;
  int made = 0;  ///< port calls so far
  int devices = 0;
  std::uint64_t image_size = 0;

  std::size_t count(const std::string& call) const {
    return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), call));
  }
  void reboot() {
    mounts.clear();
    special.clear();
    boot_id = "boot-2";
  }
  bool is_mounted(const std::string& path) const { return mounts.contains(path); }
  /// The device under the path is gone; its mount is still there.
  void kill_device(const std::string& path) { special[path] = {PathState::At::dead, mounts.at(path), "it is gone", 0}; }
};

/// One process: its ports, its manager, its locks.
class Process {
 public:
  explicit Process(World& world);
  ~Process();
  result<Claim> mount(Mount mount, Until until = {});
  result<> unmount(const std::string& target, Until until = {});
  result<> set_down(const std::string& target) { return loop_.run(manager_->set_down(target, {})); }
  manager::Manager& manager() { return *manager_; }
  Loop& loop() { return loop_; }
  std::vector<manager::Event> heard;

 private:
  class FakePlugin;
  class FakeNode;
  class FakeClaims;
  class Ear;
  Loop loop_;
  Folder locks_;
  std::unique_ptr<FakePlugin> plugin_;
  std::unique_ptr<FakeNode> node_;
  std::unique_ptr<FakeClaims> claims_;
  std::unique_ptr<Ear> ear_;
  std::unique_ptr<manager::Manager> manager_;
};

inline const std::string kRoot = "/var/lib/test";

/// Volume "vol-1" at /srv/<user>.
inline Mount wanted(const std::string& user = "a", const std::string& id = "vol-1") {
  Mount mount;
  mount.volume.external_id = id;
  mount.user = user;
  mount.target = "/srv/" + user;
  mount.usage.fstype = "ext4";
  mount.usage.mount_options = {"noatime"};
  return mount;
}

}  // namespace corbd::test
