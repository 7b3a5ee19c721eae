// The process under test: the real shell and healer on the world's ports, its lives, and its clients of the cluster.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "../../../src/keeper/policy.hpp"
#include "corbd/lifecycle/lifecycle.hpp"
#include "corbd/volume/shell.hpp"
#include "support/loop.hpp"

namespace corbd::test {

class World;

enum class Client { live, dead, fenced };

class Agent {
 public:
  /// `first`: the same node's other process.
  explicit Agent(World& world, Agent* first = nullptr);
  ~Agent();

  /// Makes the ports of a fresh agent, with a client address of its own.
  void start(bool with_healer = false);
  /// Does the same. Its files may make it end at once, which its keeper sees as a death.
  result<> try_to_start(bool with_healer);
  /// Begins beside a serving agent: without the lock, the records, or a healer.
  void begin_beside();
  bool beside() const { return beside_; }
  /// Whether this agent has the lock of the state directory.
  bool has_lock() const { return node.has_lock == this || node.resumed == this; }
  /// Takes the lock, and reads the records. `beside`: its predecessor serves on if it cannot.
  task<result<>> acquire_state(bool beside);
  /// Plays image::Clusters::reload_predecessor_clients.
  result<> reload_predecessor_clients(bool ended);
  /// Whether the client belongs to the living predecessor.
  bool yields(const std::string& client) const { return yields_.contains(client); }
  /// Whether the client belongs to the predecessor, which handed its images to this process, and lives or has ended
  /// cleanly.
  bool handed_over(const std::string& client) const { return yields(client) || handed_over_.contains(client); }
  /// Serves, alone from now on.
  void serve();
  /// Ends the agent's process: its clients are dead, and so are links that its keeper does not have.
  void kill(bool with_keeper = false);
  /// Does the same, and returns how soon the keeper starts the next agent; nothing: there is no keeper any more.
  std::optional<duration> die();
  /// Kills the keeper while no agent runs.
  void keeper_dies();
  /// Leaves as on SIGTERM.
  void stop();
  /// Leaves until its process would end.
  task<> leave_well();
  /// Plays a planned restart: the next agent takes over this one's devices. If this one dies meanwhile, the next one
  /// goes on with what it got (`next_lives`), or dies too: then it throws.
  void hand_over(bool with_healer = false, bool next_lives = false);
  /// Part of a handover, beside the next agent: ends commands and healing.
  task<> stop_new_work();
  /// Part of a handover. False: a record is still being written.
  task<result<>> quiesce();
  /// Undoes quiesce(): the next agent ended before it had the records.
  void resume();
  task<> hand_over_links(volume::Recipient recipient);
  device::Devices& devices();
  bool running() const { return life_ != nullptr; }
  volume::Shell& shell();
  result<> want(const std::string& id, plan::Wish wish);

  volume::FilesystemOptions filesystems;
  bool fencing = false;
  bool fence_out_of_service = false;
  bool keeper = false;           ///< its links outlive it
  bool keeper_goes_too = false;  ///< the keeper dies with the agent's next death
  bool no_descriptor = false;    ///< the process cannot open anything
  bool compares_names = true;    ///< refuses a next agent with another --nodeid; version 0.1.0 does not compare
  /// State that the processes of a node share.
  struct Node {
    std::set<std::string> given_up;
    std::map<std::string, Client> clients;
    std::set<std::string> recorded;  ///< those that may have opened an image for writing: their files exist
    int clients_made = 0;
    std::string other_name;                              ///< --nodeid of the agents that begin; "": the node's
    std::set<std::pair<std::string, std::string>> left;  ///< client, and ID of an image that it left to the next one
    std::set<std::string> cut;                           ///< clients of the living agent, which the cluster cut off
    const Agent* has_lock = nullptr;                     ///< agent that got the state directory's lock last
    const Agent* resumed = nullptr;  ///< it handed the lock over, and serves on: it kept a copy of the descriptor
  };

 private:
  Node own_node_;

 public:
  Node& node;
  std::set<std::string>& given_up = node.given_up;        ///< volumes failed by hand
  std::string node_address = "10.0.0.1";                  ///< address of this node's clients
  std::map<std::string, Client>& clients = node.clients;  ///< this node's clients, by its incarnation files
  /// Returns the client for the next image; "" before one is made.
  std::string client() const { return client_; }

  // Used by the ports.
  int life() const { return lives_; }
  /// Returns its --nodeid.
  const std::string& called() const { return called_; }
  /// Whether the API server knows no such node.
  bool misnamed() const;
  /// Whether that life is not over.
  bool lives(int life) const { return running() && life == lives_; }
  /// Returns the client of the user and key in `access`, which is not known to be cut off. "": a new one would be,
  /// because the cluster has fenced this node.
  std::string connection(const image::Access& access);
  /// Returns the clients that connection() returned, or could.
  std::set<std::string> connections();
  /// Returns why nobody may use that client so; nothing: it may be used.
  result<> admits(const std::string& client, const image::Access& access) const;
  /// Does the same for calls that only monitors answer: they also answer fenced clients.
  result<> admits_to_monitors(const image::Access& access) const;
  /// unavailable until the clients of the previous agent are known, which are read again if they were not.
  result<> knows_before();
  /// Plays rbd::Connections::record. A disk that takes nothing makes it fail.
  result<> record(const std::string& client);
  void note_cut(const std::string& address);
  /// Plays rbd::Connections::note_answer.
  void note_answer(const std::string& client, bool answered);
  /// Plays rbd::Connections::retire_all: a client of that user and key gets no new image, and ends with its last one.
  void retire_all(const image::Access& access);
  /// Ends the client if it is retired and has no image.
  void end_if_idle(const std::string& client);
  bool was_cut(const std::string& address) const { return node.cut.contains(address); }
  bool fenced_once = false;  ///< in this life
  bool leaving = false;      ///< this life was told to end
  time_point leaves_by{};    ///< with everything answered, if the cluster answers by then

 private:
  void let_go_of_inherited();
  void let_go_later();
  /// Forgets a client that never could write: no later start knows it.
  void client_ended(const std::string& client);
  struct Life;
  void begin();
  void make_healer();
  World& world_;
  bool beside_ = false, ends_well_ = false;
  bool reads_again_ = false;  ///< reads the clients of the previous agent again
  keeper::Policy policy_;
  time_point began_{};
  int lives_ = 0;
  std::string client_, called_;
  struct Connection {
    std::string user;
    Secret key;
    std::string client;
    bool unanswered = false;
  };
  std::vector<Connection> connections_;
  /// By user: from then on another client may be made because none of an access answers.
  std::map<std::string, time_point> further_from_;
  const std::string& any_connection();
  std::set<std::string> own_clients_, retired_;
  std::set<std::string> yields_;       ///< clients of the agent beside this one
  std::set<std::string> handed_over_;  ///< those that have ended cleanly
  std::unique_ptr<Life> life_;
};

/// Returns the life of an agent that began alone, and serves.
lifecycle::State serving_life(const lifecycle::Settings& settings);
lifecycle::Action advance(lifecycle::State& life, const lifecycle::Event& event);

plan::Staged staged_wish(const std::string& image);
/// Makes the same wish for an encrypted volume.
plan::Staged encrypted_wish(const std::string& image, const std::string& kms_id = "default");

}  // namespace corbd::test
