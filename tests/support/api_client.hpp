// The API client on a control thread of its own, in real time; and tests of its behaviour with a server that refuses or
// forgets, scripted or real.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "corbd/kube/api.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"

namespace Catch {
template <class T>
struct StringMaker<corbd::kube::answer<T>> {
  static std::string convert(const corbd::kube::answer<T>& from) { return from ? "a value" : from.error().error.text; }
};
}  // namespace Catch

namespace corbd::test {

class ApiClient {
 public:
  explicit ApiClient(kube::Access how, http::Timing timing = {}) : access(std::move(how)), timing_(timing) {}

  /// Made at the first request: `access` can be changed until then.
  kube::Api& api() {
    if (!api_) api_ = std::make_unique<kube::Api>(io.get_executor(), *clock, names, files, access, timing_);
    return *api_;
  }
  template <class T>
  T run(task<T> work) {
    Started<T> started(io, std::move(work));
    return std::move(started.get());
  }
  auto get(const kube::Resource& resource, const std::string& name, Until until = {}) {
    return run(api().get(resource, name, until));
  }
  auto list(const kube::Resource& resource, const std::string& name = "", const std::string& version = "") {
    return run(api().list(resource, selector(name), version, {}));
  }
  auto create(const kube::Resource& resource, boost::json::object body) {
    return run(api().create(resource, std::move(body), {}));
  }
  auto patch(const kube::Resource& resource, const std::string& name, boost::json::object body) {
    return run(api().patch(resource, name, std::move(body), {}));
  }
  auto json_patch(const kube::Resource& resource, const std::string& name, boost::json::array operations) {
    return run(api().json_patch(resource, name, std::move(operations), {}));
  }
  /// Runs a watch to its end, and returns its events and how it ended.
  std::pair<std::vector<kube::Change>, kube::answer<>> watch(const kube::Resource& resource, const std::string& name,
                                                             std::string version, std::chrono::seconds timeout,
                                                             bool initial = false) {
    std::vector<kube::Change> events;
    auto keep = [&](kube::Change change) {
      events.push_back(std::move(change));
      return true;
    };
    auto ended = run(api().watch(resource, selector(name), std::move(version), timeout, initial, keep, {}));
    return {std::move(events), std::move(ended)};
  }
  static std::string selector(const std::string& name) { return name.empty() ? "" : kube::named(name); }
  Until within(std::chrono::milliseconds time) { return {clock->now() + time}; }

  asio::io_context io;
  std::unique_ptr<Clock> clock = make_real_clock(io.get_executor());
  BlockingPool names{io.get_executor(), *clock, 1}, files{io.get_executor(), *clock, 1};
  kube::Access access;

 private:
  asio::executor_work_guard<asio::io_context::executor_type> work_{io.get_executor()};
  const http::Timing timing_;
  std::unique_ptr<kube::Api> api_;
};

// --- tests of both the scripted server and a real one

inline void expect_absent(ApiClient& client, const kube::Resource& resource, const std::string& name) {
  const auto answer = client.get(resource, name);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().error.code == errc::not_found);
  CHECK_THAT(answer.error().error.text, ContainsSubstring("404 NotFound") && ContainsSubstring(name));
}

inline void expect_forbidden(ApiClient& client, const kube::Resource& resource) {
  const auto got = client.get(resource, "one");
  REQUIRE_FALSE(got);
  CHECK(got.error().error.code == errc::permission_denied);
  CHECK_THAT(got.error().error.text, ContainsSubstring("403 Forbidden") &&
                                         ContainsSubstring("grant the verb 'get' on '" + resource.rbac + "'"));
  CHECK_THAT(client.list(resource).error().error.text,
             ContainsSubstring("grant the verb 'list' on '" + resource.rbac + "'"));
  const auto [events, ended] = client.watch(resource, "one", "", std::chrono::seconds(5));
  REQUIRE_FALSE(ended);
  CHECK_THAT(ended.error().error.text, ContainsSubstring("grant the verb 'watch' on '" + resource.rbac + "'"));
}

inline void expect_stranger(ApiClient& client, const kube::Resource& resource) {
  const auto answer = client.get(resource, "one");
  REQUIRE_FALSE(answer);
  CHECK(answer.error().error.code == errc::unauthenticated);
}

inline void expect_taken(ApiClient& client, const kube::Resource& resource, const boost::json::object& body) {
  const auto answer = client.create(resource, body);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().error.code == errc::already_exists);
  CHECK_THAT(answer.error().error.text, ContainsSubstring("409 AlreadyExists"));
}

inline void expect_expired(ApiClient& client, const kube::Resource& resource, const std::string& version) {
  const auto [events, ended] = client.watch(resource, "one", version, std::chrono::seconds(5));
  REQUIRE_FALSE(ended);
  CHECK(ended.error().kind == kube::ApiError::Kind::expired);
  CHECK(events.empty());
}

inline void expect_too_new(ApiClient& client, const kube::Resource& resource, const std::string& version) {
  const auto answer = client.list(resource, "", version);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().kind == kube::ApiError::Kind::too_new);
  CHECK(answer.error().retry_after == std::chrono::seconds(1));
}

}  // namespace corbd::test
