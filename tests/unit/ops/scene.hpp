// An admin server with scripted volumes and the real healer behind it, and a real client.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <map>
#include <vector>

#include "corbd/ops/admin.hpp"
#include "corbd/v1/admin.grpc.pb.h"
#include "support/catch.hpp"
#include "support/control_thread.hpp"
#include "support/folder.hpp"
#include "support/scripted_volumes.hpp"

namespace corbd::test {

using namespace std::chrono_literals;

/// A wish that is `held` waits for its Until.
class Scripted final : public ScriptedVolumes {
 public:
  Scripted(executor control, Clock& clock) : never_(std::move(control), clock) {}
  task<result<>> want(std::string id, plan::Wish wish, Until until) override {
    const auto* healed = std::get_if<plan::Healed>(&wish);
    asked.push_back(std::string(name(wish)) + " " + id +
                    (healed != nullptr && healed->operator_override ? " without proof" : "") +
                    (healed != nullptr && healed->loss_accepted ? ", loss accepted" : ""));
    if (!held) co_return outcome;
    const Waited how = co_await never_.wait(until);
    co_return wait_error(how, "the scripted volume");
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
  std::vector<std::string> asked;
  bool held = false;

 private:
  Event never_;
};

class Scene {
 public:
  Scene()
      : clock_(make_real_clock(thread.control())),
        volumes(thread.control(), *clock_),
        healer(thread.control(), *clock_, volumes, {}) {
    ops::AdminConfig config;
    config.runtime_dir = folder_.path();
    config.describe = [](v1::Program& into) { into.set_version("1.2"); };
    config.nodeid = "node-1";
    config.driver = "rbd.csi.ceph.com";
    ops::AdminSources sources{volumes, healer, {}, {}, {}, {}};
    sources.timeline = [this](const std::string& id) { return timelines[id]; };
    sources.stuck_helpers = [this] { return stuck; };
    sources.set_cordoned = [this](bool on, Until) -> task<result<>> {
      cordoned = on;
      co_return set_cordoned_ends;
    };
    sources.facts = [this] {
      auto known = facts;
      if (cordoned) known.cordoned = "2026-01-31T12:00:00Z";
      return known;
    };
    sources.on_override = [this](const std::string& id, const plan::Healed&, const std::string& by,
                                 const result<>& done) { overridden = {id, by, done ? "" : done.error().text}; };
    server = std::make_unique<ops::Admin>(thread.control(), *clock_, sources, config);
  }
  void start() {
    REQUIRE(server->start());
    thread.start();
  }
  ~Scene() {
    if (!thread.runs()) return;
    stop();
    thread.finish(healer.stop());
    thread.call([this] { server.reset(); });
    thread.end();
  }
  void stop() { thread.finish(server->stop({clock_->now() + 4s})); }
  void note(const std::string& id, volume::Health to, const std::string& why = "because") {
    thread.call([&] { server->changed({clock_->wall(), id, volume::Health::staged, to, why}); });
  }
  std::string socket() const { return folder_.path() + "/admin.sock"; }
  std::unique_ptr<v1::Admin::Stub> stub() const {
    return v1::Admin::NewStub(grpc::CreateChannel("unix://" + socket(), grpc::InsecureChannelCredentials()));
  }
  /// The call's end, at the latest after 20 s.
  template <class Request, class Response>
  grpc::Status call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response& response, std::chrono::milliseconds limit = 20s) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    return (stub().get()->*method)(&context, request, &response);
  }

 private:
  Folder folder_;

 public:
  ControlThread thread;

 private:
  std::unique_ptr<Clock> clock_;

 public:
  Scripted volumes;
  heal::Healer healer;
  std::map<std::string, std::vector<volume::Change>> timelines;
  std::atomic<bool> cordoned{false};
  result<> set_cordoned_ends;           ///< with this
  ops::NodeFacts facts;                 ///< of the node
  std::vector<std::string> overridden;  ///< volume, by whom, error
  std::vector<HelperPool::Stuck> stuck;
  std::unique_ptr<ops::Admin> server;
};

}  // namespace corbd::test
