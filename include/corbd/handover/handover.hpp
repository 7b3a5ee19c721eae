// A planned restart without a break: the agent that serves gives its links to the next one, which asks for them. Until
// its last message the next agent has nothing; from then on the one before has nothing. Whatever ends in between ends
// as a crash does: the links die with their last holder, and whoever has the lock of the state folder heals.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/fd.hpp"

namespace corbd::handover {

/// Our end of the socket that the kernel has for /dev/nbd<device>.
struct Link {
  std::string volume_id;
  std::uint32_t device = 0;
  Fd socket;
};

/// What the next agent needs.
struct Estate {
  std::vector<Link> links;
  Fd lock;  ///< the lock of the state folder. It is held as long as one process has it open
};

/// Of each side.
struct Side {
  std::string version;
  int records = 0;    ///< as plan::record_version counts
  std::string state;  ///< which state folder: identity()
};

/// Tells a folder from any other on this machine, whatever its path is.
std::string identity(const std::string& folder);

/// Where the agent with this runtime folder waits for the next one.
std::string socket_path(const std::string& runtime_dir);

/// Asks the agent that serves for its links, and waits until it has ended. Blocks for at most four minutes. Nothing: no
/// agent is there, or it ended without giving them. failed_precondition: it refuses, and goes on serving.
result<std::optional<Estate>> ask(const std::string& runtime_dir, const Side& next);

/// The side that serves. Control thread.
class Giver {
 public:
  Giver(executor control, Clock& clock, BlockingPool& files, std::string runtime_dir, Side own);
  /// From now on a next agent can ask. Only the same user is heard.
  result<> start(std::function<void()> asked);
  /// Waits for a next agent that may have the links, and calls `asked` once it does.
  task<> run();
  /// Nobody else is heard.
  void stop();
  /// A next agent waits, as far as is known.
  bool has_next() const { return static_cast<bool>(next_); }
  /// Asks it whether it still waits. If it does not answer within 2 s it is given up, and run() may be called again.
  task<bool> next_answers();
  /// Sends everything: 5 s at most for each 64 links, if the next agent does not read. Afterwards nothing of it is open
  /// here.
  task<result<>> give(Estate estate);
  /// The next agent sees that this one has ended, as it does when this process ends.
  void leave() { next_.reset(); }

 private:
  executor control_;
  Clock& clock_;
  BlockingPool& files_;
  const std::string path_;
  const Side own_;
  std::optional<asio::posix::basic_stream_descriptor<executor>> listener_;
  std::function<void()> asked_;
  std::shared_ptr<Fd> next_;
};

}  // namespace corbd::handover
