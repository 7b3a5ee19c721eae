// The keeper: a parent process that outlives an agent which dies, holds its sockets and their ledgers, and restarts it.
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

/// Version of the messages between keeper and agent, of the exit code kBeginsAnew, and of the rules for stored ledgers.
/// The keeper sends it first. An agent with another version ends, and its keeper ends every link and itself: the kernel
/// repeats each unanswered request on the link of the agent that the service manager starts next.
/// Version 1 had no listening sockets.
inline constexpr std::uint32_t kProtocol = 2;

struct StoredLink {
  device::FdStore::Link link;
  Fd socket, ledger;
  int given = 0;  ///< number of agents that got it and stored nothing in its place
};
struct StoredMemory {
  std::uint64_t token = 0;
  Fd file;
};
/// A socket on which the agent listens. Callers that connect while no agent lives wait in it.
struct StoredListener {
  std::string path;
  bool registered = false;  ///< it is the registration socket, and kubelet has registered the driver there
  Fd socket;
};
/// Deaths of agents by a signal or crash since the keeper began.
struct Deaths {
  std::uint32_t count = 0;
  int signal = 0;     ///< signal of the last one; 0: it could not be started
  time_point last{};  ///< by CLOCK_MONOTONIC, which is std::chrono::steady_clock and the same in every process
  duration pause{};   ///< between the last death and the next start
};
/// Everything that a keeper stores for the next agent.
struct StoredFds {
  std::vector<StoredLink> links;
  std::vector<StoredMemory> memory;
  std::vector<StoredListener> listeners;
  Deaths deaths;
};

/// An agent that finds the state directory free waits this long before it acts: the dead agent may have a keeper.
inline constexpr std::chrono::seconds kStartsAgainWithin{1};

/// Exit code of an agent that has handed all its devices to the next one, and must be restarted to wait in reserve
/// (handover/reserve.hpp). No program of ours ends with it otherwise.
inline constexpr int kBeginsAnew = 86;

/// Makes a connected pair for a keeper and its agent, in this order.
result<std::pair<Fd, Fd>> make_pair();

/// The agent's end of the conversation. `socket`: connected to the keeper.
class Client final : public device::FdStore {
 public:
  explicit Client(Fd socket) : socket_(std::move(socket)) {}
  /// Returns what the keeper holds, before anything is held or dropped. The keeper continues to hold it.
  /// failed_precondition: it speaks another protocol, and none of its content was read.
  result<StoredFds> take();
  result<> hold(const Link& link, int socket, int ledger) override;
  result<> hold_memory(std::uint64_t token, int file) override;
  /// After an error the keeper may still hold it.
  result<> drop(std::uint64_t token) override;
  /// Stores the socket that is bound at `path`, and replaces any earlier one there.
  result<> hold_listener(const std::string& path, bool registered, int socket);
  result<> drop_listener(const std::string& path);
  /// Returns the deaths that take() received.
  const Deaths& deaths() const { return deaths_; }
  /// Whether a message could not be sent, because the keeper does not read or has ended. From then on it may not know
  /// of a link.
  bool deaf() const { return deaf_; }

 private:
  result<> say(const KeeperMessage& note, const std::string& backend, std::span<const int> descriptors);
  Fd socket_;
  Deaths deaths_;
  std::atomic<bool> deaf_ = false;  ///< each I/O loop stores its own links
};

/// The keeper's end of the conversation.
class Store {
 public:
  /// Sends everything to an agent that has not begun. A link that cannot be sent is not kept any longer: it ends here.
  /// So does a link that ten agents had before, because they may have died of it.
  void give_all(int socket);
  /// Reads everything that the agent has sent so far, also if it is dead by now.
  void hear(int socket);
  /// Records that the agent was killed or crashed, or could not be started (signal 0).
  void note_death(int signal, time_point when, duration pause);
  /// Drops all links: the kernel has seen the end of each. No agent lives. Listening sockets stay, because no agent can
  /// have damaged them.
  void let_go();
  /// Drops the listening sockets: the next agent comes so late that another one may want the paths.
  void drop_listeners() { stored_.listeners.clear(); }
  /// Whether the living agent holds each link, and none is left from the last one.
  bool all_taken() const;
  /// Forgets everything about earlier agents.
  void begin_anew();
  const StoredFds& stored() const { return stored_; }

 private:
  bool give(int socket, StoredLink& one);
  void be_deaf(int socket, const Error& why);
  void take_in(Heard& heard);
  void drop(std::uint64_t token);
  StoredFds stored_;
  bool deaf_ = false;                ///< a message of this agent was incomplete
  std::vector<StoredLink> unheard_;  ///< links that it had sent before: sent to no agent, and ended once it is dead
};

/// Returns the socket of this process's keeper, if a keeper started it. Later children of this process do not inherit
/// it.
Fd socket_of_keeper();

/// Starts this program again, with the same arguments, whenever it dies or ends with kBeginsAnew. Returns the exit code
/// of an agent that ended by itself or was told to.
int run(std::span<char* const> arguments);

}  // namespace corbd::keeper
