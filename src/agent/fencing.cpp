// `--fencing-only`: the FenceController without an agent, used instead of ceph-csi's controller. It has no volumes and
// no state, so it needs no lock.
#include <unistd.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>

#include "agent.hpp"
#include "cluster_directory.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/core/log.hpp"
#include "corbd/csi/server.hpp"
#include "corbd/rbd/clusters.hpp"
#include "version.hpp"

namespace corbd::agent {
namespace {

constexpr std::size_t kThreads = 2;
constexpr std::chrono::seconds kFencingLeavesWithin{10};

csi::Config csi_config(const Options& options, fence::Fencer& fencer) {
  csi::Config config;
  config.addons_endpoint = options.addons_endpoint;
  config.drivername = options.drivername;
  config.nodeid = options.nodeid;
  config.version = CORBD_VERSION;
  config.fencer = &fencer;
  return config;
}

class Fencing {
 public:
  explicit Fencing(const Options& options)
      : control_(io_.get_executor()),
        clock_(make_real_clock(control_)),
        files_(control_, *clock_, kThreads),
        gate_(control_, *clock_),
        clusters_(
            rbd::make_clusters(control_, *clock_, files_, {.incarnations_dir = options.runtime_dir + "/fencing"})),
        fencer_(*clusters_, [&options](const std::string& id) { return monitors_of(options, id); }),
        server_(control_, *clock_, csi_config(options, fencer_)),
        signals_(io_, SIGTERM, SIGINT) {}

  int run() {
    if (auto started = server_.start(); !started) return refuse(started.error());
    gate_.spawn(main());
    io_.run();
    return 0;
  }

 private:
  task<> main() {
    log::info("fencing.started");
    co_await signals_.async_wait(asio::use_awaitable);
    const Until until{clock_->now() + kFencingLeavesWithin};
    co_await server_.stop(until);
    // A client that ends cleanly leaves nothing to fence.
    static_cast<void>(co_await clusters_->shutdown(until));
    log::info("fencing.left");
    io_.stop();
  }

  asio::io_context io_{1};
  executor control_;
  std::unique_ptr<Clock> clock_;
  BlockingPool files_;
  Gate gate_;
  std::unique_ptr<image::Clusters> clusters_;
  fence::Fencer fencer_;
  csi::FencingServer server_;
  asio::signal_set signals_;
};

}  // namespace

int run_fencing(const Options& options) {
  log::start_thread();
  Fencing fencing(options);
  const int code = fencing.run();
  log::drain(std::chrono::milliseconds(200));
  ::_exit(code);
}

}  // namespace corbd::agent
