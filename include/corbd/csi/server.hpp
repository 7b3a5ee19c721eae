// The CSI socket with the Identity and Node services, and the socket of CSI-Addons beside it; or the latter alone, for
// fencing.
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

struct Config {
  std::string endpoint;         ///< unix:///path/to.sock
  std::string addons_endpoint;  ///< empty: none
  std::string drivername;
  std::string nodeid;
  std::string version;
  /// Segments (csi/topology.hpp); an error while they are not known. Control thread.
  std::function<result<std::map<std::string, std::string>>()> topology = [] {
    return std::map<std::string, std::string>();
  };
  cephcsi::Mounter default_mounter = cephcsi::Mounter::nbd;  ///< for volumes whose attributes name none: nbd or krbd
  /// Who serves a volume that is to be staged; default_mounter, if nobody says. Control thread.
  std::function<task<result<cephcsi::Mounters>>(std::string volume_id, cephcsi::Attributes attributes, Until until)>
      mounters = nullptr;
  bool volume_health = false;  ///< NodeGetVolumeHealth of CSI 1.13 (alpha): older callers do not know its capability
  bool controller = true;      ///< whether a controller is deployed beside the agent: ceph-csi's provisioner
  fence::Fencer* fencer = nullptr;  ///< for the FenceController; null: there is none
  std::size_t max_calls = 512;
  std::function<void(const rpc::Ended&)> on_ended;  ///< as of rpc::Config
};

class Server {
 public:
  Server(executor control, Clock& clock, volume::Volumes& volumes, Config config);
  ~Server();
  /// Goes on with those of the sockets that are its own.
  result<> start(rpc::Inherited& inherited);
  /// The sockets, for the next agent. Nobody is accepted any more, and callers that come wait in them.
  std::vector<Fd> release();
  /// The next agent did not come: goes on with what release() gave.
  result<> go_on(std::vector<Fd> sockets);
  /// Those on which it listens, by path.
  std::map<std::string, int> sockets() const;
  task<> stop(Until until);
  /// The number of calls about volumes that have not ended, on both sockets. Any thread.
  std::size_t in_flight() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// `cephcsi --fencing-only`, in the place of ceph-csi's controller: only the socket of CSI-Addons, with the
/// services that fence. Config::fencer must be there.
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
