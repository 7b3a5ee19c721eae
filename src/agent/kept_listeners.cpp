#include "kept_listeners.hpp"

#include "corbd/core/log.hpp"

namespace corbd::agent {

void KeptListeners::keep(const std::string& path, int socket, bool registered) {
  if (keeper_ == nullptr) return;
  const auto kept = socket < 0 ? keeper_->drop_listener(path) : keeper_->hold_listener(path, registered, socket);
  if (!kept) log::warning("keeper.listener_not_kept", {{"path", path}, {"error", kept.error().text}});
}

void KeptListeners::keep_all(const csi::Server& of) {
  for (const auto& [path, socket] : of.sockets()) keep(path, socket, false);
}

void KeptListeners::drop_all(const csi::Server& of) {
  for (const auto& [path, socket] : of.sockets()) keep(path, -1, false);
}

}  // namespace corbd::agent
