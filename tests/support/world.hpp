// A node and a cluster that obey the rules of the real ones, for running the whole control plane on a virtual clock: the kernel keeps
// devices and mounts when the agent dies, the cluster keeps locks of dead clients until they are fenced and broken.
#pragma once

#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "corbd/volume/shell.hpp"
#include "support/loop.hpp"

namespace corbd::test {

/// Thrown by a port in the middle of a step: the agent is gone, the world stays.
struct Crash : std::runtime_error {
  Crash() : std::runtime_error("crash") {}
};

struct FakeImage {
  std::string id;
  std::uint64_t size = 1 << 30;
  bool exclusive = true;
  std::string lock_owner;             ///< client address; "" = free
  std::set<std::string> watchers;
  std::uint64_t version = 1;          ///< of the header
  std::int64_t mark = 0;              ///< of the header: its time of change
  void changed(std::int64_t left = 0) {
    ++version;
    mark = left;
  }
  std::map<std::string, std::string> metadata;
  bool data = false;                  ///< any extent allocated
  host::Probe::Kind content = host::Probe::Kind::nothing;
  std::string fstype;
  std::uint64_t generation = 0;       ///< counts formats: a second one destroyed data
  int checks = 0;                     ///< fsck runs
};

struct KernelDevice {
  std::uint32_t index = 0;
  std::string backend;
  std::string image_id;               ///< of what serves it
  std::uint64_t size = 0;
  bool alive = false;
  bool read_only = false;
  std::uint32_t io_timeout_ms = 30000;
};

class World {
 public:
  explicit World(Loop& loop) : loop_(loop) {}

  /// Ports of a fresh agent, with a client address of its own.
  void start_agent();
  /// The agent's process is gone: links die, its client is dead.
  void kill_agent();
  volume::Shell& shell() { return *shell_; }
  result<> want(const std::string& id, volume::Wish wish);

  /// Before the Nth port call from now the agent dies (0: never).
  int crash_at = 0;
  /// Before the next port call of that name ("acquire lock") the agent dies.
  std::string crash_in;
  /// The Nth port call from now fails with `error` (0: never).
  int fail_at = 0;
  Error error{errc::unavailable, "made to fail"};
  int calls = 0;

  std::map<std::string, FakeImage> images;   ///< by name
  std::vector<KernelDevice> devices;
  std::vector<host::Mount> mounts;
  std::vector<volume::Record> records;
  std::map<std::string, Secret> keys;
  std::set<std::string> blocklisted;
  std::set<std::string> dead_incarnations;
  bool heal_without_proof = false;
  std::string boot_id = "boot-1";
  std::vector<std::string> broken_rules;     ///< what must never happen, and did

  // For the ports.
  task<result<>> tick(std::string what);
  std::string client() const { return "10.0.0.1:0/" + std::to_string(life_); }
  FakeImage* by_id(const std::string& image_id);
  KernelDevice* by_index(std::uint32_t index);
  Loop& loop() { return loop_; }
  void broke(std::string rule) { broken_rules.push_back(std::move(rule)); }

 private:
  struct Ports;
  Loop& loop_;
  int life_ = 0;
  std::shared_ptr<Ports> ports_;
  std::unique_ptr<volume::Shell> shell_;
};

volume::Staged staged_wish(const std::string& image);

}  // namespace corbd::test
