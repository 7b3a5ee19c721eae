// What outlives an agent that dies: a parent process with its sockets and their ledgers, which starts it again.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/time.hpp"
#include "corbd/device/fd_store.hpp"

namespace corbd::keeper {

struct Heard;
struct KeeperMessage;

/// Of the messages between keeper and agent, of the exit code kBeginsAnew, and of what a ledger's keeping means. The
/// keeper says it first. An agent that speaks another one ends, and its keeper ends every link and itself: the kernel
/// repeats each unanswered request on the link of whatever the service manager starts next.
/// 1 knew no listening sockets.
inline constexpr std::uint32_t kProtocol = 2;

struct StoredLink {
  device::FdStore::Link link;
  Fd socket, ledger;
  int given = 0;  ///< to how many agents, of which none has put anything in its place
};
struct StoredMemory {
  std::uint64_t token = 0;
  Fd file;
};
/// A socket on which the agent listens. Callers that come while no agent lives wait in it.
struct StoredListener {
  std::string path;
  bool registered = false;  ///< it is the one of the registration, and kubelet has taken the driver there
  Fd socket;
};
/// Of agents that were killed or crashed, since the keeper began.
struct Deaths {
  std::uint32_t count = 0;
  int signal = 0;     ///< of the last; 0: it could not be started
  time_point last{};  ///< of CLOCK_MONOTONIC, as std::chrono::steady_clock has it: the same in every process
  duration pause{};   ///< between the last one and the next start
};
struct StoredFds {
  std::vector<StoredLink> links;
  std::vector<StoredMemory> memory;
  std::vector<StoredListener> listeners;
  Deaths deaths;
};

/// Whoever finds the state directory free waits so long before it acts: the agent that died may have a keeper.
inline constexpr std::chrono::seconds kStartsAgainWithin{1};

/// The exit code of an agent that has given all its devices to the next one, and shall be started again, to wait in
/// reserve (handover/reserve.hpp). No program of ours ends with it otherwise.
inline constexpr int kBeginsAnew = 86;

/// A connected pair for a keeper and its agent, in this order.
result<std::pair<Fd, Fd>> make_pair();

/// The agent's side. `socket`: the keeper's other end.
class Client final : public device::FdStore {
 public:
  explicit Client(Fd socket) : socket_(std::move(socket)) {}
  /// What the keeper has, before anything is held or dropped. The keeper goes on having it. failed_precondition: it
  /// speaks another protocol, and nothing that it has was looked at.
  result<StoredFds> take();
  result<> hold(const Link& link, int socket, int ledger) override;
  result<> hold_memory(std::uint64_t token, int file) override;
  /// An error: the keeper may have it still.
  result<> drop(std::uint64_t token) override;
  /// Has the socket that is bound at `path` from now on, in the place of any other there.
  result<> hold_listener(const std::string& path, bool registered, int socket);
  result<> drop_listener(const std::string& path);
  /// As take() was told.
  const Deaths& deaths() const { return deaths_; }
  /// Something could not be told: it does not read, or has ended. From then on it may not know of a link.
  bool deaf() const { return deaf_; }

 private:
  result<> say(const KeeperMessage& note, const std::string& backend, std::span<const int> descriptors);
  Fd socket_;
  Deaths deaths_;
  std::atomic<bool> deaf_ = false;  ///< each I/O loop tells it of its own links
};

/// The keeper's side.
class Store {
 public:
  /// To an agent that has not begun. What does not get through is not kept any longer: that link ends here. So does one
  /// that ten agents had before: it may be what they died of.
  void give_all(int socket);
  /// Whatever the agent has said so far, also if it is dead by now.
  void hear(int socket);
  /// The agent was killed or crashed, or could not be started (signal 0).
  void note_death(int signal, time_point when, duration pause);
  /// Has no link any more: the kernel has seen the end of each. No agent lives. Listening sockets stay: no agent can
  /// have spoiled them.
  void let_go();
  /// The next agent comes so late that another one may want the paths.
  void drop_listeners() { stored_.listeners.clear(); }
  /// Each link is held by the agent that lives, and none is only what the last one left.
  bool all_taken() const;
  /// As with no agent so far.
  void begin_anew();
  const StoredFds& stored() const { return stored_; }

 private:
  bool give(int socket, StoredLink& one);
  void be_deaf(int socket, const Error& why);
  void take_in(Heard& heard);
  void drop(std::uint64_t token);
  StoredFds stored_;
  bool deaf_ = false;                ///< a message of this agent was not whole
  std::vector<StoredLink> unheard_;  ///< what it had said before: given to nobody, and ended once it is dead
};

/// The socket of this process's keeper, if a keeper started it. Later children of this process know nothing of it.
Fd socket_of_keeper();

/// Starts this program again, with the same arguments, and again when it dies or ends with kBeginsAnew. Returns the
/// exit code of one that has ended by itself or was told to.
int run(std::span<char* const> arguments);

}  // namespace corbd::keeper
