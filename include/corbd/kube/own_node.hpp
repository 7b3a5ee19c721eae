// This node's own Node object. Its labels say where the node is, its status says what is attached to it. Nothing waits
// for it: a caller that needs a label is told that it is not known yet.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "corbd/kube/access.hpp"
#include "corbd/kube/informer.hpp"
#include "corbd/kube/objects.hpp"

namespace corbd::kube {

/// Uses a kubeconfig if one is named, otherwise the pod's service account.
result<Access> find_access(const std::string& kubeconfig, const Environment& environment);

/// Asks until `questions` end. For a command, which has no control thread.
void ask(const Access& access, const std::function<task<>(Api&, Clock&)>& questions);

/// Control thread only. stop() before it is destroyed, if it was started.
class OwnNode {
 public:
  /// `api` is an error if no API server is known. `labels()` then returns that error.
  OwnNode(executor control, Clock& clock, result<Api*> api, std::string name);

  /// Sets a callback for new answers of labels(). Call it before start().
  void on_labels(std::function<void()> changed) { labels_changed_ = std::move(changed); }
  /// Sets a callback for every change of the Node.
  void on_change(std::function<void()> changed) { changed_ = std::move(changed); }
  /// Starts to ask. A second call does nothing.
  void start();
  task<> stop(Until until);
  /// not_found: the API server has no Node of this name.
  result<> exists() const;
  /// unavailable: not known yet, with the reason; not_found: there is no such Node.
  result<std::map<std::string, std::string>> labels() const;
  /// Returns the Node as it is now; nothing while it is not known.
  std::optional<Node> now() const;

 private:
  const std::string name_;
  std::unique_ptr<Informer> node_;
  const Error no_access_;
  std::function<void()> changed_, labels_changed_;
  bool started_ = false;
};

}  // namespace corbd::kube
