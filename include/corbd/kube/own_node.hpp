// This node's own Node object: its labels tell where the node is, its status what is attached to it. Nothing waits for
// it; whoever needs a label hears that it is not known yet.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "corbd/kube/access.hpp"
#include "corbd/kube/kept.hpp"
#include "corbd/kube/objects.hpp"

namespace corbd::kube {

/// A kubeconfig if one is named, otherwise the pod's service account.
result<Access> find_access(const std::string& kubeconfig, const Environment& environment);

/// Control thread only. stop() before it is destroyed, if it was started.
class OwnNode {
 public:
  /// `api`: an error where no API server is known; `labels()` tells it.
  OwnNode(executor control, Clock& clock, result<Api*> api, std::string name);

  /// Asks from now on; again is nothing.
  void start();
  task<> stop(Until until);
  /// unavailable: not known yet, and why; not_found: there is no such Node.
  result<std::map<std::string, std::string>> labels() const;
  /// As it is now; nothing while that is not known.
  std::optional<Node> now() const;

 private:
  const std::string name_;
  std::unique_ptr<Kept> node_;
  const Error no_access_;
  bool started_ = false;
};

}  // namespace corbd::kube
