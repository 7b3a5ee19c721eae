// The process under test: the real shell and healer on the world's ports, its lives, and its clients of the cluster.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "corbd/volume/shell.hpp"
#include "policy.hpp"
#include "support/loop.hpp"

namespace corbd::test {

class World;

enum class Client { live, dead, fenced };

class Agent {
 public:
  explicit Agent(World& world);
  ~Agent();

  /// Ports of a fresh agent, with a client address of its own.
  void start(bool with_healer = false);
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
  bool running() const { return life_ != nullptr; }
  volume::Shell& shell();
  result<> want(const std::string& id, plan::Wish wish);

  volume::FilesystemOptions filesystems;
  bool fencing = false;
  bool fence_out_of_service = false;
  bool keeper = false;                    ///< its links outlive it
  bool keeper_goes_too = false;           ///< with the agent's next death
  bool no_descriptor = false;             ///< the process can open nothing
  std::set<std::string> given_up;         ///< volumes failed by hand
  std::string node_address = "10.0.0.1";  ///< of this node's clients
  std::map<std::string, Client> clients;  ///< of this node, as its incarnation files tell
  /// The client that the next image would be opened on; "" before one is made.
  std::string client() const { return client_; }

  // For the ports.
  int life() const { return lives_; }
  /// Whether that life is not over.
  bool lives(int life) const { return running() && life == lives_; }
  /// A client that is not known to be cut off. "": a new one would be, because the cluster has fenced this node.
  std::string connection();
  /// Why nobody may use that client with this key; nothing: it may be used.
  result<> admits(const std::string& client, const Secret& key) const;
  /// The same of calls that only monitors answer: they hear whom the cluster has fenced too.
  result<> admits_to_monitors(const std::string& client, const Secret& key) const;
  void note_cut(const std::string& address);
  bool was_cut(const std::string& address) const { return cut_.contains(address); }
  bool fenced_once = false;  ///< in this life
  bool leaving = false;      ///< this life was told to end

 private:
  void let_go_of_given();
  struct Life;
  task<> give();
  World& world_;
  keeper::Policy policy_;
  int lives_ = 0;
  std::string client_;
  std::set<std::string> unwritten_;  ///< clients whose addresses the disk did not take
  std::set<std::string> cut_;        ///< clients of the agent that lives, which the cluster cut off
  int clients_made_ = 0;
  std::unique_ptr<Life> life_;
};

plan::Staged staged_wish(const std::string& image);
/// The same of an encrypted volume.
plan::Staged encrypted_wish(const std::string& image, const std::string& kms_id = "default");

}  // namespace corbd::test
