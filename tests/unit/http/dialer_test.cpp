// What clients share on the way to their servers: look-ups of names, and TLS contexts.

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "dial.hpp"
#include "support/api_server.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;
using Found = result<http::Addresses>;

namespace {

/// Name servers that answer when the test says so.
class Names {
 public:
  http::Dialer::LookUp look_up() {
    return [this](const std::string& host) -> result<std::vector<std::string>> {
      std::unique_lock lock(mutex_);
      asked_.push_back(host);
      changed_.wait(lock, [&] { return all_ || host.starts_with("quick"); });
      return std::vector<std::string>{"127.0.0.1"};
    };
  }
  void answer_all() {
    const std::lock_guard lock(mutex_);
    all_ = true;
    changed_.notify_all();
  }
  /// Sorted: which of two threads asks first is theirs.
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_);
    auto sorted = asked_;
    std::ranges::sort(sorted);
    return sorted;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool all_ = false;
  std::vector<std::string> asked_;
};

struct Scene {
  ~Scene() { names.answer_all(); }
  Started<Found> find(const std::string& host, const std::string& share, Until until = {}) {
    return Started<Found>(loop.io, http::Dialer::Impl::find(dialer.impl().shared_from_this(), host, share, until));
  }
  result<http::Context> context(const http::Peer& peer) {
    auto work = http::Dialer::Impl::context(dialer.impl().shared_from_this(), peer, {});
    return Started<result<http::Context>>(loop.io, std::move(work)).get();
  }
  Loop loop;
  Names names;
  BlockingPool threads{loop.control(), loop.clock, 16}, files{loop.control(), loop.clock, 1};
  http::Dialer dialer{loop.control(), loop.clock, threads, &files, names.look_up()};
};

}  // namespace

TEST_CASE("all who want a name at the same time share one question") {
  Scene scene;
  auto first = scene.find("kms.example", "a");
  REQUIRE(eventually(scene.loop.io, [&] { return scene.names.asked().size() == 1; }));
  auto second = scene.find("kms.example", "a"), third = scene.find("kms.example", "b");
  scene.names.answer_all();
  CHECK(first.get().value() == http::Addresses{"127.0.0.1"});
  CHECK(second.get().value() == third.get().value());
  CHECK(scene.names.asked().size() == 1);
}

TEST_CASE("a tenant whose name servers are silent keeps two threads, and no other tenant waiting") {
  Scene scene;
  std::vector<Started<Found>> silent;
  for (int i = 0; i < 24; ++i) silent.push_back(scene.find("silent" + std::to_string(i) + ".example", "evil"));
  REQUIRE(eventually(scene.loop.io, [&] { return scene.names.asked().size() == 2; }));
  CHECK(scene.find("quick.example", "good").get());
  CHECK(scene.names.asked() == std::vector<std::string>{"quick.example", "silent0.example", "silent1.example"});
  scene.names.answer_all();
  for (auto& one : silent) CHECK(one.get());
}

TEST_CASE("who waits for a silent name server leaves in time, and the next finds its question still asked") {
  Scene scene;
  auto first = scene.find("kms.example", "a", {scene.loop.clock.now() + 5s});
  scene.loop.advance(5s);
  CHECK(first.get().error().code == errc::timed_out);
  auto second = scene.find("kms.example", "a");
  scene.names.answer_all();
  CHECK(second.get());
  CHECK(scene.names.asked().size() == 1);
}

TEST_CASE("one TLS context serves all who believe the same authorities, for some minutes") {
  Scene scene;
  http::Peer peer, other;
  peer.host = "a";
  other.host = "b";
  peer.authorities = other.authorities = pki("ca.pem");
  const auto first = scene.context(peer).value();
  CHECK(scene.context(other).value() == first);
  other.authorities = pki("other-ca.pem");
  CHECK_FALSE(scene.context(other).value() == first);
  peer.tls13 = true;
  CHECK_FALSE(scene.context(peer).value() == first);
  peer.tls13 = false;
  scene.loop.clock.advance(10min);
  CHECK_FALSE(scene.context(peer).value() == first);
}

TEST_CASE("authorities that are no certificates are told to each who asks") {
  Scene scene;
  http::Peer peer;
  peer.authorities = "no certificate";
  for (int i = 0; i < 2; ++i) CHECK(scene.context(peer).error().code == errc::invalid_argument);
}
