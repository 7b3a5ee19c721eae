// An admin server with scripted volumes and the real healer behind it, and a real client.
#pragma once

#include <grpcpp/grpcpp.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <atomic>
#include <future>
#include <map>
#include <thread>
#include <vector>

#include "corbd/ops/admin.hpp"
#include "corbd/v1/admin.grpc.pb.h"
#include "support/catch.hpp"
#include "support/folder.hpp"

namespace corbd::test {

using namespace std::chrono_literals;

/// Says what it is told to; each wish ends with `outcome`, and while `held` waits for its Until instead.
class Scripted final : public volume::Volumes {
 public:
  Scripted(executor control, Clock& clock) : never_(std::move(control), clock) {}
  task<result<>> want(std::string id, volume::Wish wish, Until until) override {
    wishes.push_back(std::string(name(wish)) + " " + id);
    if (!held) co_return outcome;
    const Waited how = co_await never_.wait(until);
    co_return wait_error(how, "the scripted volume");
  }
  task<result<host::Usage>> usage(std::string, std::string, Until) override { co_return host::Usage{}; }
  std::vector<volume::Status> status() const override { return all; }
  std::optional<volume::Status> status(const std::string& id) const override {
    for (const auto& one : all)
      if (one.volume_id == id) return one;
    return std::nullopt;
  }
  volume::Status& add(const std::string& id, volume::Health health = volume::Health::staged) {
    auto& made = all.emplace_back();
    made.volume_id = id;
    made.health = health;
    made.cluster_id = "a";
    made.image = "pool/" + id;
    made.unserved = health == volume::Health::reconnecting;
    return made;
  }
  std::vector<volume::Status> all;
  std::vector<std::string> wishes;
  result<> outcome;
  bool held = false;

 private:
  Event never_;
};

class Scene {
 public:
  Scene()
      : work_(io_.get_executor()), clock_(make_real_clock(io_.get_executor())), volumes(io_.get_executor(), *clock_),
        healer(io_.get_executor(), *clock_, volumes, {}) {
    ops::AdminConfig config;
    config.runtime_dir = folder_.path();
    config.version = "1.2";
    config.nodeid = "node-1";
    ops::AdminSources sources{volumes, healer, {}, {}, {}, {}};
    sources.timeline = [this](const std::string& id) { return timelines[id]; };
    sources.stuck_helpers = [this] { return stuck; };
    sources.drain = [this](bool on) { draining = on; };
    sources.draining = [this] { return draining.load(); };
    server = std::make_unique<ops::Admin>(io_.get_executor(), *clock_, sources, config);
  }
  /// Whatever is scripted before needs no on_control().
  void start() {
    REQUIRE(server->start());
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Scene() {
    if (!thread_.joinable()) return;
    stop();
    wait_for(healer.stop());
    on_control([this] { server.reset(); });
    work_.reset();
    thread_.join();
  }
  void stop() { wait_for(server->stop({clock_->now() + 4s})); }
  template <class Action>
  void on_control(Action action) {
    std::promise<void> done;
    asio::post(io_, [&] {
      action();
      done.set_value();
    });
    done.get_future().wait();
  }
  void note(const std::string& id, volume::Health to, const std::string& why = "because") {
    on_control([&] { server->note({clock_->wall(), id, volume::Health::staged, to, why}); });
  }
  std::string socket() const { return folder_.path() + "/admin.sock"; }
  std::unique_ptr<v1::Admin::Stub> stub() const {
    return v1::Admin::NewStub(grpc::CreateChannel("unix://" + socket(), grpc::InsecureChannelCredentials()));
  }
  /// The call's end, at the latest after 20 s.
  template <class Request, class Response>
  grpc::Status call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&, Response*), const Request& request,
                    Response& response, std::chrono::milliseconds limit = 20s) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    return (stub().get()->*method)(&context, request, &response);
  }

 private:
  void wait_for(task<> work) {
    std::promise<void> ended;
    asio::co_spawn(io_, std::move(work), [&](std::exception_ptr) { ended.set_value(); });
    REQUIRE(ended.get_future().wait_for(20s) == std::future_status::ready);
  }

  Folder folder_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::unique_ptr<Clock> clock_;

 public:
  Scripted volumes;
  heal::Healer healer;
  std::map<std::string, std::vector<volume::Change>> timelines;
  std::atomic<bool> draining{false};
  std::vector<HelperPool::Stuck> stuck;
  std::unique_ptr<ops::Admin> server;

 private:
  std::thread thread_;
};

}  // namespace corbd::test
