// The process under test: the real shell and healer on the world's ports, its lives, and its clients of the cluster.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "../../../src/keeper/policy.hpp"
#include "corbd/lifecycle/lifecycle.hpp"
#include "corbd/volume/shell.hpp"
#include "support/loop.hpp"

namespace corbd::test {

class World;

enum class Client { live, dead, fenced };

class Agent {
 public:
  /// `first`: of the same node's other process.
  explicit Agent(World& world, Agent* first = nullptr);
  ~Agent();

  /// Ports of a fresh agent, with a client address of its own.
  void start(bool with_healer = false);
  /// The same. Its files may be such that it ends at once, which its keeper sees as a death.
  result<> try_to_start(bool with_healer);
  /// Beside one that serves: without the lock, the records, or a healer.
  void begin_beside();
  bool beside() const { return beside_; }
  /// Whether this agent has the lock of the state directory.
  bool has_lock() const { return node.has_lock == this || node.resumed == this; }
  /// It has the lock, and reads the records. `beside`: its predecessor serves on if it cannot.
  task<result<>> acquire_state(bool beside);
  /// As image::Clusters::look_at_before.
  result<> look_at_before(bool ended);
  /// Of the predecessor, which lives.
  bool yields(const std::string& client) const { return yields_.contains(client); }
  /// Of the predecessor, which gave its images to this very process, and lives or has ended well.
  bool handed_over(const std::string& client) const { return yields(client) || handed_over_.contains(client); }
  /// Alone from now on.
  void serve();
  /// The agent's process is gone: its clients are dead, and so are links that its keeper does not have.
  void kill(bool with_keeper = false);
  /// The same, and how soon the keeper starts the next one; nothing: there is no keeper any more.
  std::optional<duration> die();
  /// While no agent runs.
  void keeper_dies();
  /// It leaves as on SIGTERM.
  void stop();
  /// Until its process would end.
  task<> leave_well();
  /// A planned restart: the next agent takes over what this one gives. If this one dies meanwhile, the next one goes on
  /// with what it got (`next_lives`), or dies too: then it throws.
  void hand_over(bool with_healer = false, bool next_lives = false);
  /// The parts of that, of an agent that lives beside the next one: no command is under way, and nothing is healed.
  task<> stop_new_work();
  /// False: a record is still being written.
  task<result<>> quiesce();
  /// The next agent ended before it had the records.
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
  bool keeper_goes_too = false;  ///< with the agent's next death
  bool no_descriptor = false;    ///< the process can open nothing
  bool compares_names = true;    ///< it hands over to none of another --nodeid; one of 0.1.0 does not look
  /// What the processes of a node share.
  struct Node {
    std::set<std::string> given_up;
    std::map<std::string, Client> clients;
    std::set<std::string> recorded;  ///< of those, whoever may open an image for writing: their files are there
    int clients_made = 0;
    std::string other_name;           ///< --nodeid of the agents that begin; "": the node's
    std::set<std::string> cut;        ///< clients of the agent that lives, which the cluster cut off
    const Agent* has_lock = nullptr;  ///< of the state directory: whoever got it last
    const Agent* resumed = nullptr;   ///< it gave that to a next agent, and serves on: it kept a copy of the descriptor
  };

 private:
  Node own_node_;

 public:
  Node& node;
  std::set<std::string>& given_up = node.given_up;        ///< volumes failed by hand
  std::string node_address = "10.0.0.1";                  ///< of this node's clients
  std::map<std::string, Client>& clients = node.clients;  ///< of this node, as its incarnation files tell
  /// The client that the next image would be opened on; "" before one is made.
  std::string client() const { return client_; }

  // For the ports.
  int life() const { return lives_; }
  /// Its --nodeid.
  const std::string& called() const { return called_; }
  /// The API server knows no such node.
  bool misnamed() const;
  /// Whether that life is not over.
  bool lives(int life) const { return running() && life == lives_; }
  /// A client that is not known to be cut off. "": a new one would be, because the cluster has fenced this node.
  std::string connection();
  /// Why nobody may use that client so; nothing: it may be used.
  result<> admits(const std::string& client, const image::Access& access) const;
  /// The same of calls that only monitors answer: they hear whom the cluster has fenced too.
  result<> admits_to_monitors(const image::Access& access) const;
  /// unavailable until the clients of the agent before it are known, which are read again if they were not.
  result<> knows_before();
  /// As rbd::Connections::record. A disk that takes nothing fails it.
  result<> record(const std::string& client);
  void note_cut(const std::string& address);
  bool was_cut(const std::string& address) const { return node.cut.contains(address); }
  bool fenced_once = false;  ///< in this life
  bool leaving = false;      ///< this life was told to end
  time_point leaves_by{};    ///< with everything answered, if the cluster answers by then

 private:
  void let_go_of_inherited();
  void let_go_later();
  /// No later start knows of a client that never could write.
  void client_ended(const std::string& client);
  struct Life;
  void begin();
  void make_healer();
  World& world_;
  bool beside_ = false, ends_well_ = false;
  bool reads_again_ = false;  ///< the clients of the agent before it
  keeper::Policy policy_;
  time_point began_{};
  int lives_ = 0;
  std::string client_, called_;
  std::set<std::string> own_clients_;
  std::set<std::string> yields_;       ///< clients of the agent beside this one
  std::set<std::string> handed_over_;  ///< those that have ended well
  std::unique_ptr<Life> life_;
};

/// The life of an agent that began alone, and serves.
lifecycle::State serving_life(const lifecycle::Settings& settings);
lifecycle::Action advance(lifecycle::State& life, const lifecycle::Event& event);

plan::Staged staged_wish(const std::string& image);
/// The same of an encrypted volume.
plan::Staged encrypted_wish(const std::string& image, const std::string& kms_id = "default");

}  // namespace corbd::test
