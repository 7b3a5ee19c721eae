// A planned restart without a break: the serving agent hands its links, one by one, to the next one, which asks for
// them. The lock of the state directory goes first; both hold it until the predecessor has ended. A link belongs to the
// process that has its socket. An interruption ends as a crash does: a link dies with its last holder, and the agent
// with the lock heals.
#pragma once

#include <sys/types.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/fields.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/device/link_socket.hpp"
#include "corbd/handover/values.hpp"

namespace corbd::handover {

struct Message;

/// Version of the conversation. Two agents hand over only if theirs is the same. Version 1 passed all links in one
/// message, after every image was closed. No release spoke it.
inline constexpr int kProtocol = 2;

/// One agent's description of itself.
struct Side {
  std::string version;
  int records = 0;                     ///< see plan::record_version
  std::string state;                   ///< identity() of its state directory
  bool kept = false;                   ///< its parent is its keeper, which is the supervisor's main process
  bool listens = false;                ///< it takes over its predecessor's listening sockets
  std::string node = {}, driver = {};  ///< --nodeid and --drivername; empty: its version does not send them
  bool accepts_refused = false;        ///< --accept-refused
  static constexpr std::tuple fields{
      fields::added("version", &Side::version),  fields::required("records", &Side::records),
      fields::added("state", &Side::state),      fields::rare("keeper", &Side::kept),
      fields::rare("listeners", &Side::listens), fields::rare("node", &Side::node),
      fields::rare("driver", &Side::driver),     fields::rare("accepts_refused", &Side::accepts_refused)};
};

/// Returns a text that distinguishes a folder from any other on this machine, whatever its path is.
std::string identity(const std::string& folder);

/// Returns the path on which the agent with this runtime folder waits for the next one.
std::string socket_path(const std::string& runtime_dir);

/// Asks the serving agent for its devices. Blocks for at most ten seconds; the result is for a Conversation. Invalid:
/// no agent is there, or it ended. failed_precondition: it refuses, and goes on serving.
result<Fd> ask(const std::string& runtime_dir, const Side& next);

/// A message, with the descriptor that belongs to it.
struct ReceivedMessage {
  PeerMessage message;
  Fd descriptor;
};

/// One side of the conversation between two agents. Control thread; one hearer at a time.
class Conversation {
 public:
  Conversation(executor control, Clock& clock, Fd socket);
  /// not_found: the other side has ended. timed_out: nothing came in time. cancelled: end() was called meanwhile.
  task<result<Message>> hear(Until until);
  /// internal: the message is unknown, or has a descriptor too many or too few.
  task<result<ReceivedMessage>> next_message(Until until);
  /// Never waits: unavailable if the other side does not read.
  result<> say(const PeerMessage& peer_message, const Fd* descriptor = nullptr);
  void end();
  int socket() { return stream_.native_handle(); }

 private:
  Clock& clock_;
  asio::posix::basic_stream_descriptor<executor> stream_;
};

/// The serving side of a handover. Control thread.
class Giver {
 public:
  Giver(executor control, Clock& clock, std::string runtime_dir, Side own);
  /// Lets a next agent ask from now on. Other users are not heard.
  result<> start(std::function<void()> asked);
  /// Waits for a next agent that may have the links, and calls `asked` once there is one.
  task<> run();
  /// Stops listening: no other agent is heard.
  void stop();
  /// Whether a next agent waits, as far as is known.
  bool has_next() const { return static_cast<bool>(next_); }
  /// Asks the next agent whether it is ready. If it does not answer in time it is given up, and run() may be called
  /// again.
  task<bool> next_answers(duration within);
  /// Volumes whose images the next agent could not open, by its last message.
  const std::vector<std::string>& unopened_images() const { return unopened_images_; }
  /// Whether it takes over also if it cannot open images that this agent could not open again either.
  bool next_accepts_refused() const { return next_ && next_accepts_refused_; }
  /// Tells the next agent that it may be the only one that can serve this node, and asks whether it is ready. After a
  /// yes it goes on even if it is told to end.
  task<bool> ask_commit(duration within);
  /// Returns the next agent's process as its supervisor sees it: its own, or its keeper's. 0: unknown.
  pid_t next_process() const;
  /// Hands over the lock of the state directory, and waits for 10 s until the next agent has read the records. The lock
  /// stays open here: it is held while any process has it open. not_found: that agent has ended. unavailable: it may
  /// still use the lock.
  task<result<>> hand_over_lock(const Fd& lock);
  /// Whether the next agent takes over listening sockets. An earlier version does not.
  bool next_listens() const { return next_ && next_listens_; }
  /// Hands over a socket on which this agent listened, and no longer accepts. `registered`: it is the registration
  /// socket, and kubelet has registered the driver. Call it after hand_over_lock() and before end().
  result<> hand_over_listener(Fd socket, bool registered);
  /// Hands over a link. Afterwards its socket is closed here; one that was never sent stays in `link`. Returns whether
  /// the next agent serves the device, when it says so or after 5 s. unavailable: it has ended, or does not read.
  task<result<bool>> hand_over(device::LinkSocket& link);
  /// Sends the last message: this agent holds nothing any more, except the lock.
  result<> end();
  /// Closes the conversation. The next agent sees the same when this process ends.
  void leave();
  /// Whether no operation that uses this object is under way.
  bool quiet() const { return gate_.count() == 0; }

 private:
  task<> answer_caller(Fd caller);
  task<> hear_next(std::shared_ptr<Conversation> next);
  task<bool> awaits(std::shared_ptr<Event>& answer, PeerMessage peer_message, const Fd* descriptor, duration within);
  void note(const PeerMessage& peer_message);
  void lose_next();

  executor control_;
  Clock& clock_;
  const std::string path_;
  const Side own_;
  std::optional<asio::posix::basic_stream_descriptor<executor>> listener_;
  std::function<void()> asked_;
  std::shared_ptr<Conversation> next_;
  bool next_is_kept_ = false, next_listens_ = false, next_accepts_refused_ = false, said_end_ = false;
  bool next_has_ended_ = false;  ///< the kernel says so: no process has its end of the conversation
  std::shared_ptr<Event> ready_, loaded_;
  std::vector<std::string> unopened_images_;
  std::map<std::pair<device::Kind, std::uint32_t>, std::shared_ptr<Event>> taking_;  ///< keyed by device
  Gate gate_;
};

}  // namespace corbd::handover
