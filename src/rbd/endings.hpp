// Ends the clients of connections, and knows those that may have written and have not ended yet.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "corbd/core/gate.hpp"
#include "incarnation.hpp"

namespace corbd::rbd {

class Connections;
struct Connection;

/// Control thread only.
class Endings {
 public:
  /// `all` owns it.
  Endings(Connections& all, Incarnations& incarnations);
  /// Ends a client that nobody uses, in the background. If all images were closed cleanly, or none could be written,
  /// its incarnation needs no fencing.
  void shut(std::shared_ptr<Connection> connection) { shuts_.spawn(shut_one(std::move(connection))); }
  /// Marks a client that the cluster refuses. Its incarnation needs fencing if it may have written.
  void drop(const std::shared_ptr<Connection>& connection);
  /// Whether that client may have written, serves no more and is not shut yet.
  bool contains(const std::string& uuid) const { return ending_.contains(uuid); }
  /// Returns how many clients are being shut.
  std::size_t count() const { return shuts_.count(); }
  /// Waits for them, and shuts no more.
  task<Waited> close(Until until) { return shuts_.close(until); }

 private:
  void end_before_entry(const std::shared_ptr<Connection>& connection);
  task<> shut_one(std::shared_ptr<Connection> connection);

  Connections& all_;
  Incarnations& incarnations_;
  Gate shuts_;                    ///< each makes its call through Connections::gate() once it gets a thread
  std::set<std::string> ending_;  ///< uuids
};

}  // namespace corbd::rbd
