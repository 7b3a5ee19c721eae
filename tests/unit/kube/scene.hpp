// The API client against a scripted server.
#pragma once

#include <boost/asio/executor_work_guard.hpp>

#include "corbd/kube/api.hpp"
#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"

namespace Catch {
template <class T>
struct StringMaker<corbd::kube::answer<T>> {
  static std::string convert(const corbd::kube::answer<T>& from) { return from ? "a value" : from.error().error.text; }
};
}  // namespace Catch

namespace corbd::test {

inline const kube::Resource kThings{"/api/v1/things", "things"};

/// The client on a control thread of its own time; the server's threads are real.
class ApiScene {
 public:
  explicit ApiScene(ApiServer::Script script, ApiServer::Tls tls = ApiServer::Tls::none, http::Timing timing = {})
      : server(std::move(script), tls), access(server.access()), timing_(timing) {}
  kube::Api& api() {
    if (!api_) api_ = std::make_unique<kube::Api>(io_.get_executor(), *clock_, pool_, access, timing_);
    return *api_;
  }
  template <class T>
  T run(task<T> work) {
    Started<T> started(io_, std::move(work));
    return std::move(started.get());
  }
  auto get(const std::string& name = "one", Until until = {}) { return run(api().get(kThings, name, until)); }
  /// A watch to its end: its events, and how it ended.
  std::pair<std::vector<kube::Change>, kube::answer<>> watch(std::string version = "7", bool initial = false) {
    std::vector<kube::Change> events;
    auto keep = [&](kube::Change change) {
      events.push_back(std::move(change));
      return true;
    };
    auto ended = run(api().watch(kThings, "one", std::move(version), std::chrono::seconds(300), initial, keep, {}));
    return {std::move(events), std::move(ended)};
  }
  BlockingPool& pool() { return pool_; }
  Until within(std::chrono::milliseconds time) { return {clock_->now() + time}; }

 private:
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  std::unique_ptr<Clock> clock_ = make_real_clock(io_.get_executor());
  BlockingPool pool_{io_.get_executor(), *clock_, 1};

 public:
  ApiServer server;
  kube::Access access;

 private:
  http::Timing timing_;
  std::unique_ptr<kube::Api> api_;
};

inline void thing(const ApiServer::Request&, ApiServer::Peer& peer) { peer.answer(200, R"({"metadata":{"name":"one"}})"); }

inline ApiServer::Script always(unsigned status, std::string body, std::string headers = {}) {
  return [=](const ApiServer::Request&, ApiServer::Peer& peer) { peer.answer(status, body, headers); };
}

/// A watch whose body comes in these pieces.
inline ApiServer::Script pieces(std::vector<std::string> all) {
  return [all = std::move(all)](const ApiServer::Request&, ApiServer::Peer& peer) {
    peer.begin();
    for (const auto& one : all) peer.piece(one);
    peer.end();
  };
}

inline std::string event(const std::string& type, const std::string& version) {
  return R"({"type":")" + type + R"(","object":{"kind":"Thing","metadata":{"name":"one","resourceVersion":")" + version + "\"}}}\n";
}

}  // namespace corbd::test
