// `cephcsi --type=liveness`: asks the agent's socket for Probe again and again, and serves the result.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <iostream>
#include <thread>

#include "corbd/cli/options.hpp"
#include "corbd/core/clock.hpp"
#include "corbd/core/log.hpp"
#include "corbd/http/server.hpp"
#include "csi/v1/csi.grpc.pb.h"

namespace corbd::cli {
namespace {

namespace spec = ::csi::v1;

bool ready(spec::Identity::Stub& plugin, std::chrono::milliseconds timeout) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  context.set_wait_for_ready(true);
  spec::ProbeResponse response;
  const auto status = plugin.Probe(&context, spec::ProbeRequest(), &response);
  if (!status.ok())
    log::warning("liveness.no_answer",
                 {{"code", static_cast<int>(status.error_code())}, {"error", status.error_message()}});
  return status.ok() && (!response.has_ready() || response.ready().value());
}

void ask_for_ever(const Liveness& watch, std::atomic<bool>& alive) {
  // Reconnect fast, so that the next probe sees an agent that is back.
  grpc::ChannelArguments arguments;
  for (const char* pause : {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS})
    arguments.SetInt(pause, 100);
  spec::Identity::Stub plugin(grpc::CreateCustomChannel(watch.endpoint, grpc::InsecureChannelCredentials(), arguments));
  for (;;) {
    alive = ready(plugin, watch.timeout);
    std::this_thread::sleep_for(watch.poll);
  }
}

http::Response page(const std::string& path, const http::Request& request, bool alive) {
  if (std::string_view(request.target).substr(0, request.target.find('?')) != path)
    return {404, "text/plain; charset=utf-8", "this server has only " + path + "\n"};
  return {200, "text/plain; version=0.0.4; charset=utf-8",
          std::string("# HELP csi_liveness Liveness Probe\n# TYPE csi_liveness gauge\ncsi_liveness ") +
              (alive ? "1\n" : "0\n")};
}

}  // namespace

int watch_liveness(const Liveness& watch) {
  asio::io_context io{1};
  const auto clock = make_real_clock(io.get_executor());
  std::atomic<bool> alive{false};
  http::Config config;
  config.address = watch.address;
  config.port = watch.port;
  http::Server server(io.get_executor(), *clock, config,
                      [&](const http::Request& request) { return http::answered(page(watch.path, request, alive)); });
  if (const auto listens = server.start(); !listens) {
    std::cerr << "cephcsi: " << listens.error().text << "\n";
    return 1;
  }
  log::info("liveness.serves", {{"address", watch.address}, {"port", server.port()}, {"endpoint", watch.endpoint}});
  // Runs until a signal ends the process.
  std::thread(ask_for_ever, std::cref(watch), std::ref(alive)).detach();
  io.run();
  return 0;
}

}  // namespace corbd::cli
