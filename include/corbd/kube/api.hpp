// The API server's calls: get, list, watch, create, patch. Tokens and certificates are read anew when they rotate.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/kube/access.hpp"
#include "corbd/kube/answer.hpp"

namespace corbd::kube {

/// What to ask of: "/api/v1/nodes", "nodes".
struct Resource {
  std::string path;  ///< of the collection
  std::string rbac;  ///< as RBAC names it: "volumeattachments.storage.k8s.io"
};

struct Listed {
  std::vector<boost::json::object> items;
  std::string version;
};

/// One line of a watch. A bookmark has a version and nothing else that counts.
struct Change {
  enum class Kind { added, modified, deleted, bookmark } kind;
  boost::json::object object;  ///< of a bookmark empty
  std::string version;
  bool ends_initial = false;  ///< of a bookmark: all that there is was told
};

/// The field selector of the one object of that name.
std::string named(const std::string& name);

/// Control thread only. Outlives its calls.
class Api {
 public:
  Api(executor control, Clock& clock, BlockingPool& pool, Access access, http::Timing timing = {});
  ~Api();

  task<answer<boost::json::object>> get(Resource resource, std::string name, Until until);
  /// All pages. `selector`: of fields; empty: all objects. `version`: as of resourceVersion; empty: the most recent.
  task<answer<Listed>> list(Resource resource, std::string selector, std::string version, Until until);
  /// Until the server ends it, in good order (nothing) or not (why), or `until`. on_change returns false to end it.
  /// `initial`: first of all what there is, each as added, and then a bookmark that says so; a server that does not
  /// know that refuses (422), or never says so (docs/sources.md#api-versions).
  task<answer<>> watch(Resource resource, std::string selector, std::string version, std::chrono::seconds timeout,
                       bool initial, std::function<bool(Change)> on_change, Until until);
  task<answer<boost::json::object>> create(Resource resource, boost::json::object body, Until until);
  /// A strategic merge patch.
  task<answer<boost::json::object>> patch(Resource resource, std::string name, boost::json::object body, Until until);

  /// How far the server's clock was ahead of this node's when it gave an object or a list last: at least so much, and
  /// hardly more than a second more (it tells whole seconds). Nothing: it did not tell.
  std::optional<std::chrono::milliseconds> ahead() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::kube
