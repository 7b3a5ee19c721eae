// The listening sockets that the agent's keeper holds: no name in the folder comes or goes when the agent is killed,
// and callers wait for the next agent.
#pragma once

#include <string>

#include "corbd/csi/server.hpp"
#include "corbd/keeper/keeper.hpp"

namespace corbd::agent {

class KeptListeners {
 public:
  /// `keeper` may be null: an agent without one keeps nothing.
  explicit KeptListeners(keeper::Client* keeper) : keeper_(keeper) {}
  /// `registered`: whether kubelet has registered the driver by it. A socket of -1 drops what is kept at that path.
  void keep(const std::string& path, int socket, bool registered);
  void keep_all(const csi::Server& of);
  void drop_all(const csi::Server& of);

 private:
  keeper::Client* const keeper_;
};

}  // namespace corbd::agent
