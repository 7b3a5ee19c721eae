// Tells kubelet of this driver, in the place of the sidecar node-driver-registrar: a socket in kubelet's
// plugins_registry (docs/sources.md#kubelet-registration).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "corbd/core/wait.hpp"

namespace corbd::csi {

struct RegistrarConfig {
  std::string folder;      ///< kubelet's plugins_registry
  std::string drivername;  ///< the socket is <folder>/<drivername>-reg.sock
  std::string endpoint;    ///< path of the CSI socket as kubelet sees it on the host
};

/// What decides whether and how kubelet is told.
struct RegistrarWish {
  std::optional<bool> by_hand;  ///< otherwise where kubelet's plugins_registry exists
  std::string kubelet_dir, drivername;
  std::string endpoint;          ///< the CSI socket, unix:///path/to.sock
  std::string endpoint_on_host;  ///< its path; empty: that of `endpoint`, which must lie below kubelet_dir then
};
/// Nothing: kubelet is not told. failed_precondition: by_hand asks for it and the socket's path on the host is not
/// known; without by_hand that is said and kubelet is not told. invalid_argument: no path.
result<std::optional<RegistrarConfig>> registrar_config(const RegistrarWish& wish, bool registry_exists);

/// Control thread only. stop() before it is destroyed, if it was started.
class Registrar {
 public:
  Registrar(executor control, Clock& clock, RegistrarConfig config);
  ~Registrar();
  /// Only once the CSI socket serves: kubelet calls it at once. From now on the socket is kept there, and made anew
  /// when kubelet refuses or is silent.
  void start();
  /// Takes the socket away first: kubelet makes no calls to this driver any more, no unstage either.
  task<> stop(Until until);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::csi
