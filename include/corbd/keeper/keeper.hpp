// What outlives an agent that dies: a parent process with its sockets and their ledgers, which starts it again.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"
#include "corbd/device/keep.hpp"

namespace corbd::keeper {

struct Held {
  device::Keep::Link link;
  Fd socket, ledger;
  int given = 0;  ///< to how many agents, of which none has put anything in its place
};
struct Memory {
  std::uint64_t token = 0;
  Fd file;
};
struct Holdings {
  std::vector<Held> links;
  std::vector<Memory> memory;
};

/// A connected pair for a keeper and its agent, in this order.
result<std::pair<Fd, Fd>> make_pair();

/// The agent's side. `socket`: the keeper's other end.
class Client final : public device::Keep {
 public:
  explicit Client(Fd socket) : socket_(std::move(socket)) {}
  /// What the keeper has, before anything is held or dropped. The keeper goes on having it.
  result<Holdings> take();
  result<> hold(const Link& link, int socket, int ledger) override;
  result<> hold_memory(std::uint64_t token, int file) override;
  result<> drop(std::uint64_t token) override;

 private:
  Fd socket_;
};

/// The keeper's side.
class Store {
 public:
  /// To an agent that has not begun. What does not get through is not kept any longer: its stream ends here. So does
  /// that of a link which ten agents had before: it may be what they died of.
  void give_all(int socket);
  /// Whatever the agent has said so far, also if it is dead by now.
  void hear(int socket);
  const Holdings& holdings() const { return holdings_; }

 private:
  void take_in(struct Heard& heard);
  void drop(std::uint64_t token);
  Holdings holdings_;
};

/// The socket of this process's keeper, if a keeper started it. Later children of this process know nothing of it.
Fd socket_of_keeper();

/// Starts this program again, with the same arguments, and again when it dies. Returns the exit code of one that has
/// ended by itself or was told to, and of one that dies too often.
int run(std::span<char* const> arguments);

}  // namespace corbd::keeper
