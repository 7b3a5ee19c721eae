#include "mounter.hpp"

#include <signal.h>
#include <unistd.h>

#include <iostream>

#include "corbd/core/display.hpp"
#include "corbd/core/process.hpp"

namespace corbd::mounting {
namespace {

constexpr int kInterrupted = 130;  // the exit code of shells

HelperPool::Config helpers_of(const Options& ask) {
  HelperPool::Config config;
  config.program = ask.program;
  return config;
}

manager::Config manager_config(const Options& ask) {
  manager::Config config;
  config.root = ask.root;
  config.locks_dir = ask.runtime_dir + "/locks";
  if (const auto boot_id = read_boot_id()) config.boot_id = *boot_id;
  return config;
}

}  // namespace

/// Reports progress on stderr. The command reports the end of an operation itself.
class Mounter::Ear final : public manager::Listener {
 public:
  void heard(const manager::Event& event) override {
    if (event.what != manager::Event::What::progress) return;
    std::cerr << "corbd: " << for_terminal(event.target.empty() ? "" : event.target + ": ")
              << for_terminal(event.message) << std::endl;
  }
};

Mounter::Mounter(const Options& ask)
    : clock_(make_real_clock(io_.get_executor())),
      files_(io_.get_executor(), *clock_, 1),
      helpers_(io_.get_executor(), *clock_, helpers_of(ask)),
      plugin_(manager::connect(io_.get_executor(), *clock_, ask.endpoint)),
      node_(manager::make_node(helpers_)),
      claims_(manager::make_claims(files_, ask.root + "/claims")),
      ear_(std::make_unique<Ear>()),
      manager_(std::make_unique<manager::Manager>(io_.get_executor(), *clock_,
                                                  manager::Ports{*plugin_, *node_, *claims_}, manager_config(ask))),
      signals_(io_, SIGINT, SIGTERM) {
  manager_->tell(*ear_);
  listen();
}

Mounter::~Mounter() = default;

Until Mounter::within(int seconds) { return {clock_->now() + std::chrono::seconds(seconds), &leaving_}; }

void Mounter::listen() {
  signals_.async_wait([this](boost::system::error_code failed, int) {
    if (failed) return;
    if (leaving_.cancelled()) ::_exit(kInterrupted);
    std::cerr << "corbd: stopping, and taking back what was not finished; once more ends this at once" << std::endl;
    listen();
    leaving_.cancel();
  });
}

}  // namespace corbd::mounting
