// A planned restart without a break: the agent that serves gives its links, one by one, to the next one, which asks for
// them. First comes the lock of the state directory, which both hold until the predecessor has ended. A link belongs to
// whoever has its socket. Whatever ends in between ends as a crash does: a link dies with its last holder, and whoever
// has the lock heals.
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

/// Of the conversation. Two agents hand over only if theirs is the same. 1 gave all links in one message, after every
/// image was closed. No release spoke it.
inline constexpr int kProtocol = 2;

/// Of each side.
struct Side {
  std::string version;
  int records = 0;                     ///< as plan::record_version counts
  std::string state;                   ///< which state directory: identity()
  bool kept = false;                   ///< its parent is its keeper, which its supervisor follows
  bool listens = false;                ///< it takes over its predecessor's listening sockets
  std::string node = {}, driver = {};  ///< --nodeid and --drivername; empty: a version that does not say
  bool accepts_refused = false;        ///< --accept-refused
  static constexpr std::tuple fields{
      fields::added("version", &Side::version),  fields::required("records", &Side::records),
      fields::added("state", &Side::state),      fields::rare("keeper", &Side::kept),
      fields::rare("listeners", &Side::listens), fields::rare("node", &Side::node),
      fields::rare("driver", &Side::driver),     fields::rare("accepts_refused", &Side::accepts_refused)};
};

/// Tells a folder from any other on this machine, whatever its path is.
std::string identity(const std::string& folder);

/// Where the agent with this runtime folder waits for the next one.
std::string socket_path(const std::string& runtime_dir);

/// Asks the agent that serves for its devices. Blocks for at most ten seconds; the answer is for a Conversation.
/// Invalid: no agent is there, or it ended. failed_precondition: it refuses, and goes on serving.
result<Fd> ask(const std::string& runtime_dir, const Side& next);

/// What one side said, with the descriptor that belongs to it.
struct Said {
  Word word;
  Fd descriptor;
};

/// One side's end of their socket. Control thread; one hearer at a time.
class Conversation {
 public:
  Conversation(executor control, Clock& clock, Fd socket);
  /// not_found: the other side has ended. timed_out: nothing came in time. cancelled: end() was called meanwhile.
  task<result<Message>> hear(Until until);
  /// internal: what it said is no word, or has a descriptor too many or too few.
  task<result<Said>> hear_word(Until until);
  /// Never waits: unavailable if the other side does not read.
  result<> say(const Word& word, const Fd* descriptor = nullptr);
  void end();
  int socket() { return stream_.native_handle(); }

 private:
  Clock& clock_;
  asio::posix::basic_stream_descriptor<executor> stream_;
};

/// The side that serves. Control thread.
class Giver {
 public:
  Giver(executor control, Clock& clock, std::string runtime_dir, Side own);
  /// From now on a next agent can ask. Only the same user is heard.
  result<> start(std::function<void()> asked);
  /// Waits for a next agent that may have the links, and calls `asked` once it does.
  task<> run();
  /// Nobody else is heard.
  void stop();
  /// A next agent waits, as far as is known.
  bool has_next() const { return static_cast<bool>(next_); }
  /// Asks it whether it is ready. If it does not say so in time it is given up, and run() may be called again.
  task<bool> next_answers(duration within);
  /// The volumes whose images the next agent could not open, as it said last.
  const std::vector<std::string>& unopened_images() const { return unopened_images_; }
  /// Whether it takes over also if it cannot open images that this agent could not open again either.
  bool next_accepts_refused() const { return next_ && next_accepts_refused_; }
  /// Tells the next agent that it may be the only one that can serve this node, and asks whether it is ready. Once it
  /// has said so, it goes on even if it is told to end.
  task<bool> begins(duration within);
  /// The process that its supervisor follows: its own, or its keeper's. 0: not known.
  pid_t next_process() const;
  /// Gives the lock of the state directory, and waits for 10 s until the next agent has read the records. The lock
  /// stays open here: it is held as long as one process has it open. not_found: that agent has ended. unavailable: it
  /// may still use it.
  task<result<>> begin(const Fd& lock);
  /// Whether the next agent goes on with listening sockets. One of an earlier version does not.
  bool next_listens() const { return next_ && next_listens_; }
  /// A socket on which this agent listened, and accepts nobody any more. `registered`: it is the one of the
  /// registration, and kubelet has taken the driver. Between begin() and end().
  result<> hand_over_listener(Fd socket, bool registered);
  /// Afterwards the socket is not open here any more; one that never left stays in `link`. Returns when the next agent
  /// serves the device, or when it has had 5 s for that: whether it serves it. unavailable: it has ended, or does not
  /// read.
  task<result<bool>> hand_over(device::LinkSocket& link);
  /// The last word: nothing is held here any more, but for the lock.
  result<> end();
  /// The next agent sees that this one has ended, as it does when this process ends.
  void leave();
  /// Nothing that uses this is under way.
  bool quiet() const { return gate_.count() == 0; }

 private:
  task<> meet(Fd caller);
  task<> hear_next(std::shared_ptr<Conversation> next);
  task<bool> awaits(std::shared_ptr<Event>& answer, Word word, const Fd* descriptor, duration within);
  void note(const Word& word);
  void lose_next();

  executor control_;
  Clock& clock_;
  const std::string path_;
  const Side own_;
  std::optional<asio::posix::basic_stream_descriptor<executor>> listener_;
  std::function<void()> asked_;
  std::shared_ptr<Conversation> next_;
  bool next_is_kept_ = false, next_listens_ = false, next_accepts_refused_ = false, said_end_ = false;
  bool next_has_ended_ = false;  ///< as the kernel says: nobody has its end of the conversation
  std::shared_ptr<Event> ready_, loaded_;
  std::vector<std::string> unopened_images_;
  std::map<std::pair<device::Kind, std::uint32_t>, std::shared_ptr<Event>> taking_;  ///< by device
  Gate gate_;
};

}  // namespace corbd::handover
