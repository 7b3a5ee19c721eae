// Calls of the API server: get, list, watch, create, patch. It reads tokens and certificates again when they rotate.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/kube/access.hpp"
#include "corbd/kube/answer.hpp"

namespace corbd::kube {

/// A kind of object: "/api/v1/nodes", "nodes".
struct Resource {
  std::string path;  ///< path of the collection
  std::string rbac;  ///< RBAC's name: "volumeattachments.storage.k8s.io"
};

struct Listed {
  std::vector<boost::json::object> items;
  std::string version;
};

/// One line of a watch. In a bookmark only the version counts.
struct Change {
  enum class Kind { added, modified, deleted, bookmark } kind;
  boost::json::object object;  ///< empty for a bookmark
  std::string version;
  bool ends_initial = false;  ///< in a bookmark: the server has sent everything that exists
};

/// Returns the field selector of the one object of that name.
std::string named(const std::string& name);

/// Control thread only. Outlives its calls.
class Api {
 public:
  /// `names` runs look-ups, which may hold a thread while a name server is silent. `files` reads answers.
  Api(executor control, Clock& clock, BlockingPool& names, BlockingPool& files, Access access,
      http::Timing timing = {});
  ~Api();

  task<answer<boost::json::object>> get(Resource resource, std::string name, Until until);
  /// Reads all pages. `selector` is a field selector; empty means all objects. `version` is the resourceVersion; empty
  /// means the most recent.
  task<answer<Listed>> list(Resource resource, std::string selector, std::string version, Until until);
  /// Lists in pages of `page` objects, passes each object to `take` and forgets it. Returns the version.
  task<answer<std::string>> each(Resource resource, std::string selector, std::string version, std::size_t page,
                                 std::function<void(boost::json::object)> take, Until until);
  /// Runs until the server ends the watch, in good order (nothing) or not (the reason), or until `until`. on_change
  /// returns false to end it. `initial`: existing objects come first, each as added, and then a bookmark that says so.
  /// A server that does not know that refuses (422), or never says so (docs/sources.md#api-versions).
  /// Lines are read on the control thread, each of at most 4 MiB, so watch only objects that no tenant writes.
  task<answer<>> watch(Resource resource, std::string selector, std::string version, std::chrono::seconds timeout,
                       bool initial, std::function<bool(Change)> on_change, Until until);
  task<answer<boost::json::object>> create(Resource resource, boost::json::object body, Until until);
  /// Sends a strategic merge patch.
  task<answer<boost::json::object>> patch(Resource resource, std::string name, boost::json::object body, Until until);
  /// Sends a JSON patch: operations that the server carries out all together, or not at all.
  task<answer<boost::json::object>> json_patch(Resource resource, std::string name, boost::json::array operations,
                                               Until until);

  /// Whether the server answers and recognises us. It asks for the server's version, unless a caller had an answer
  /// within `fresh`. A refusal of one object is an answer.
  task<result<>> look(duration fresh, Until until);

  /// Returns how far the server's clock was ahead of this node's at its last object or list. The true value is at least
  /// this, and hardly more than a second larger, because the server sends whole seconds. Nothing if the server sent no
  /// time.
  std::optional<std::chrono::milliseconds> ahead() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::kube
