// Registers this driver with kubelet, instead of the sidecar node-driver-registrar: a socket in kubelet's
// plugins_registry (docs/sources.md#kubelet-registration).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "corbd/core/wait.hpp"
#include "corbd/rpc/inherited.hpp"

namespace corbd::csi {

/// Paths of a registration with kubelet.
struct RegistrarConfig {
  std::string folder;      ///< kubelet's plugins_registry
  std::string drivername;  ///< the socket is <folder>/<drivername>-reg.sock
  std::string endpoint;    ///< path of the CSI socket as kubelet sees it on the host
};

/// Inputs that decide whether and how to register with kubelet.
struct RegistrarWish {
  std::optional<bool> by_hand;  ///< the operator's choice; unset: register if kubelet's plugins_registry exists
  std::string kubelet_dir, drivername;
  std::string endpoint;  ///< the CSI socket, unix:///path/to.sock
  /// Path of the socket on the host; empty: the path of `endpoint`, which must then lie below kubelet_dir.
  std::string endpoint_on_host;
};
/// An empty result means: do not register. failed_precondition: by_hand asks for it, but the socket's path on the host
/// is not known. Without by_hand the agent logs that and does not register. invalid_argument: no path.
result<std::optional<RegistrarConfig>> registrar_config(const RegistrarWish& wish, bool registry_exists);

/// Whether kubelet knows this driver.
struct Registered {
  enum class State {
    waits,       ///< kubelet has not taken this driver yet
    registered,  ///< kubelet calls this driver
    refused,     ///< kubelet said no
    elsewhere    ///< another program answers at the registration socket
  } state = State::waits;
  std::string text;  ///< the reason; empty: kubelet gave none
};

/// Control thread only. stop() before it is destroyed, if it was started.
class Registrar {
 public:
  Registrar(executor control, Clock& clock, RegistrarConfig config);
  ~Registrar();
  /// Call it once the CSI socket serves, because kubelet calls that at once. From then on the registrar keeps its
  /// socket there, and recreates it when kubelet refuses or is silent.
  /// With a predecessor's socket, it goes on with that one. `registered`: kubelet has accepted the driver there.
  /// kubelet does not notice the change: its watcher sees names only.
  void start(rpc::Inherited& inherited, bool registered);
  /// Calls `tell` with the socket and whether kubelet has accepted the driver there, whenever one of them changes; with
  /// -1 once there is no socket. Call it before start().
  void on_socket(std::function<void(const std::string& path, int socket, bool registered)> tell);
  /// Returns the socket for the next agent, and leaves its name in place. Invalid: there is none.
  Fd release();
  /// Resumes with the socket that release() returned, if the next agent did not come.
  result<> adopt(Fd socket);
  /// Removes the socket first. kubelet then makes no more calls to this driver, not even an unstage.
  task<> stop(Until until);
  const Registered& now() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::csi
