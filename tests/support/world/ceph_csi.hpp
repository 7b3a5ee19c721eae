// ceph-csi on this node: its stages with rbd-nbd or the kernel's client, and the rbd-nbd processes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "corbd/core/time.hpp"
#include "corbd/plan/wish.hpp"

namespace corbd::test {

class World;
struct FakeImage;
struct KernelDevice;

class CephCsi {
 public:
  explicit CephCsi(World& world) : world_(world) {}

  /// Indexes of devices whose rbd-nbd acknowledges a write that only its memory has, as it does by default.
  std::set<std::uint32_t> caching;
  std::map<std::uint32_t, std::string> daemons;  ///< rbd-nbd's client address, by the index of its device
  /// Maps the image with rbd-nbd, and stages its content at the path: a new filesystem if it is empty, the mapping of
  /// its LUKS header, its encrypted folder unlocked. Returns the device's index.
  std::uint32_t stages(const std::string& image, const std::string& staging_path, std::string volume_id = {},
                       const plan::Capability& use = {});
  /// Does the same with krbd.
  std::uint32_t stages_with_krbd(const std::string& image, const std::string& staging_path, std::string volume_id,
                                 const plan::Capability& use = {});
  /// Publishes the staged volume to a pod.
  void publishes(const std::string& volume_id, const std::string& staging_path, const std::string& target);
  /// Unstages a volume, whoever staged it.
  void unstages(std::uint32_t index, const std::string& volume_id, const std::string& staging_path);
  /// Makes a staged volume encrypted: the mapping is open, and mounted wherever the device was.
  void opens_luks(std::uint32_t index, const std::string& staging_path, const std::string& volume_id,
                  const std::string& passphrase);
  /// Plays ceph-csi's healer for a device that nobody serves: rbd-nbd serves it, once the cluster has given its last
  /// client up.
  void heals(std::uint32_t index);
  /// Ends an rbd-nbd by SIGKILL (its lock stays, its watch for a while), or cleanly as on SIGTERM.
  void ends(std::uint32_t index, bool cleanly);

  /// Sends SIGSTOP or SIGCONT to every rbd-nbd: a stopped one lives, and answers nothing.
  void stops(bool stopped);
  /// Returns host::OtherServer::uncached, as the node shows it.
  std::string uncached(std::uint32_t index) const;

  /// Used by the kernel.
  void serves(std::uint32_t index, int link, std::uint64_t request);

 private:
  void begins(std::uint32_t index, const std::string& client);
  void store(std::uint32_t index, FakeImage& image);
  std::map<std::uint32_t, time_point> begun_;
  /// By device: the numbers of each block since it was stored last. Only the last one need be stored.
  std::map<std::uint32_t, std::map<std::size_t, std::vector<std::uint64_t>>> cache_;
  void stages_contents(const std::string& image, KernelDevice& device, const std::string& staging_path,
                       const std::string& volume_id, const plan::Capability& use);
  struct Unread {
    std::uint32_t index = 0;
    int link = 0;
    std::uint64_t request = 0;
  };
  bool stopped_ = false;
  std::vector<Unread> unread_;
  World& world_;
};

}  // namespace corbd::test
