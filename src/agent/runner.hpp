// Carries out what lifecycle::next() decides, one action after the other, and passes it the events.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "corbd/agent/options.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/handover/handover.hpp"
#include "corbd/lifecycle/lifecycle.hpp"
#include "corbd/ops/node_health.hpp"
#include "corbd/volume/shell.hpp"
#include "shutdown.hpp"
#include "takeover.hpp"

namespace corbd::agent {

/// Control thread only.
class Runner {
 public:
  struct Parts {
    asio::io_context& io;
    const Options& options;
    BlockingPool& files;
    BlockingPool& names;
    volume::Shell& shell;
    handover::Giver& giver;
    Takeover& takeover;
    Shutdown& shutdown;
    std::function<task<result<>>()> begin_alone, serve;
  };
  /// `begins`: the transition that start() left.
  Runner(executor control, Clock& clock, const Parts& parts, lifecycle::Transition begins);
  /// Runs until there is nothing more to do, and returns the exit code. Most processes end before.
  int run();
  /// Called when its giver has a next agent.
  void wake() { woken_->set(); }
  /// Returns facts if the agent was told to end and serves on until the next agent asks.
  std::optional<ops::ToldFacts> waits_for_next() const;

 private:
  task<> main();
  lifecycle::Action advance(const lifecycle::Event& event);
  task<result<lifecycle::Event>> carry_out(lifecycle::Action action);
  task<result<lifecycle::Event>> serve(lifecycle::ServingAction action);
  task<lifecycle::Event> wait(lifecycle::ServingAction action);
  task<> hear_next();
  task<result<>> call_reserve();
  task<lifecycle::Event> ask_next(duration within);
  void refuse_next();
  task<result<>> announce(lifecycle::ServingAction action);
  task<> wait_for_users();
  void listen_to_signals();
  void hear(const lifecycle::Event& event);
  void heed_signal(const lifecycle::BesideAction& action);
  task<> watch_node();
  task<result<lifecycle::Event>> end(lifecycle::LastAction action);
  task<> refuse_to_serve();
  [[noreturn]] static void end_process(const lifecycle::LastAction& action);

  executor control_;
  Clock& clock_;
  const Parts parts_;
  lifecycle::State state_;
  lifecycle::Action action_;  ///< the first action
  Gate gate_;
  asio::signal_set signals_;
  CancelScope hurry_;             ///< cancelled by a second signal
  std::unique_ptr<Event> woken_;  ///< set by a signal, or by a next agent
  bool listens_ = false;
  std::vector<std::string> unopened_;  ///< volumes that are served here and that the previous next agent could not open
  std::size_t refused_here_ = 0;       ///< how many of them this agent could not open again either
  std::string first_refused_;          ///< the first of those, with the reason
  Error error_;                        ///< the last error
  int exit_code_ = 0;
};

}  // namespace corbd::agent
