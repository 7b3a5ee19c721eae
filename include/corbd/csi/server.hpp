// The CSI socket with the Identity and Node services, and the socket of CSI-Addons beside it; or, for fencing, only the
// latter.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "corbd/cephcsi/parameters.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/fence/fencer.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/rpc/calls.hpp"
#include "corbd/rpc/inherited.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::csi {

/// Something that is wrong with the storage as seen from this node.
struct BackendCondition {
  bool unreachable = false;  ///< volumes cannot be used here; otherwise some wait, or all are slow
  std::string reason;        ///< CamelCase; unique in an answer
  std::string message;
};

struct Config {
  std::string endpoint;         ///< unix:///path/to.sock
  std::string addons_endpoint;  ///< empty: none
  std::string drivername;
  std::string nodeid;
  std::string version;
  /// Returns segments (csi/topology.hpp), or an error while they are not known. Control thread.
  std::function<result<std::map<std::string, std::string>>()> topology = [] {
    return std::map<std::string, std::string>();
  };
  /// Returns how many volumes this node has room for; empty: the answer to NodeGetInfo does not say. Control thread.
  std::function<task<std::uint32_t>(Until until)> max_volumes = nullptr;
  cephcsi::Mounter default_mounter = cephcsi::Mounter::nbd;  ///< for volumes that name no mounter: nbd or krbd
  /// Chooses the mounter of a volume that is to be staged; empty: default_mounter. Control thread.
  std::function<task<result<cephcsi::Mounters>>(std::string volume_id, cephcsi::Attributes attributes, Until until)>
      mounters = nullptr;
  /// Offers NodeGetVolumeHealth and NodeGetStorageHealth of CSI 1.13 (alpha), which older callers do not know.
  bool volume_health = false;
  /// Returns what is wrong with the clusters, from what the agent knows already. Control thread.
  std::function<std::vector<BackendCondition>()> backends = [] { return std::vector<BackendCondition>(); };
  bool controller = true;           ///< whether a controller, ceph-csi's provisioner, is deployed beside the agent
  fence::Fencer* fencer = nullptr;  ///< serves the FenceController; null: there is none
  std::size_t max_calls = 512;
  std::function<void(const rpc::Ended&)> on_ended;  ///< see rpc::Config
};

/// The CSI socket, and the socket of CSI-Addons. Control thread only, except where noted.
class Server {
 public:
  Server(executor control, Clock& clock, volume::Volumes& volumes, Config config);
  ~Server();
  /// Takes over its own sockets from `inherited`.
  result<> start(rpc::Inherited& inherited);
  /// Returns the sockets for the next agent. No connection is accepted any more, and new callers wait in the sockets.
  std::vector<Fd> release();
  /// Resumes with the sockets that release() returned, if the next agent did not come.
  result<> adopt(std::vector<Fd> sockets);
  /// Returns the sockets on which it listens, by path.
  std::map<std::string, int> sockets() const;
  task<> stop(Until until);
  /// Returns the number of unfinished calls about volumes, on both sockets. Any thread.
  std::size_t in_flight() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// `cephcsi --fencing-only`, used instead of ceph-csi's controller: only the socket of CSI-Addons, with the services
/// that fence. Config::fencer must be set.
class FencingServer {
 public:
  FencingServer(executor control, Clock& clock, Config config);
  ~FencingServer();
  result<> start();
  task<> stop(Until until);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::csi
