// The client of a plugin, against a server that is not ours, and against programs that are no plugin.
#include <sys/socket.h>
#include <sys/un.h>

#include <future>
#include <thread>

#include "corbd/core/fd.hpp"
#include "corbd/manager/plugin.hpp"
#include "scripted_plugin.hpp"
#include "support/catch.hpp"
#include "support/control_thread.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;
using grpc::StatusCode;

namespace {

struct Client {
  Folder folder;
  std::string socket = folder.path() + "/csi.sock";
  ControlThread thread;
  std::unique_ptr<Clock> clock = make_real_clock(thread.control());
  std::unique_ptr<manager::Plugin> plugin = manager::connect(thread.control(), *clock, "unix://" + socket);

  Client() { thread.start(); }
  ~Client() {
    plugin.reset();
    thread.end();
  }
  Until within(std::chrono::milliseconds time) const { return {clock->now() + time}; }
  template <class T>
  T get(task<T> work) {
    std::promise<T> done;
    asio::co_spawn(thread.control(), std::move(work),
                   [&](std::exception_ptr, T value) { done.set_value(std::move(value)); });
    return done.get_future().get();
  }
};

/// Says the same to whoever connects, and closes, or stays silent.
class NoPlugin {
 public:
  NoPlugin(const std::string& socket, std::string says, bool closes)
      : listening_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listening_.get(), 8) == 0);
    thread_ = std::thread([this, says = std::move(says), closes] {
      std::vector<Fd> open;
      for (;;) {
        Fd one(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!one) return;
        if (!says.empty()) static_cast<void>(::send(one.get(), says.data(), says.size(), MSG_NOSIGNAL));
        if (!closes) open.push_back(std::move(one));
      }
    });
  }
  ~NoPlugin() {
    ::shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  Fd listening_;
  std::thread thread_;
};

manager::Mount full_mount() {
  manager::Mount mount;
  mount.volume.external_id = "id-1";
  mount.usage = {"MULTI_NODE_READER_ONLY", manager::AccessType::filesystem, true, "xfs", {"nodev", "noatime"}};
  mount.target = "/target";
  mount.volume_context = {{"pool", "rbd"}};
  mount.publish_context = {{"device", "7"}};
  mount.secrets["userKey"] = Secret(std::string("secret"));
  return mount;
}

}  // namespace

TEST_CASE("a stage and a publish carry the whole volume, and a publish of a plugin that does not stage no path") {
  Client client;
  ScriptedPlugin plugin(client.socket);
  REQUIRE(client.get(client.plugin->stage(full_mount(), "/staging", client.within(20s))));
  REQUIRE(client.get(client.plugin->publish(full_mount(), "/staging", client.within(20s))));
  const auto staged = plugin.last(&ScriptedPlugin::staged);
  CHECK(staged.volume_id() == "id-1");
  CHECK(staged.staging_target_path() == "/staging");
  CHECK(staged.secrets().at("userKey") == "secret");
  CHECK(staged.volume_context().at("pool") == "rbd");
  CHECK(staged.publish_context().at("device") == "7");
  const auto& capability = staged.volume_capability();
  CHECK(capability.access_mode().mode() == wire::VolumeCapability::AccessMode::MULTI_NODE_READER_ONLY);
  CHECK(capability.mount().fs_type() == "xfs");
  CHECK(capability.mount().mount_flags_size() == 2);
  const auto published = plugin.last(&ScriptedPlugin::published);
  CHECK(published.target_path() == "/target");
  CHECK(published.staging_target_path() == "/staging");
  CHECK(published.readonly());
  CHECK(published.secrets().at("userKey") == "secret");
  auto block = full_mount();
  block.usage.attachment = manager::AccessType::block;
  REQUIRE(client.get(client.plugin->publish(block, "", client.within(20s))));
  CHECK(plugin.last(&ScriptedPlugin::published).volume_capability().has_block());
  CHECK(plugin.last(&ScriptedPlugin::published).staging_target_path().empty());
}

TEST_CASE("an expansion names target, staging path and capability, and gives the size that the plugin says") {
  Client client;
  ScriptedPlugin plugin(client.socket);
  plugin.size = 7;
  manager::Claim claim;
  claim.volume.external_id = "id-1";
  claim.usage = full_mount().usage;
  claim.target = "/target";
  const auto size = client.get(client.plugin->expand(claim, "/staging", client.within(20s)));
  REQUIRE(size);
  CHECK(*size == 7);
  const auto asked = plugin.last(&ScriptedPlugin::expanded);
  CHECK(asked.volume_id() == "id-1");
  CHECK(asked.volume_path() == "/target");
  CHECK(asked.staging_target_path() == "/staging");
  CHECK(asked.volume_capability().mount().fs_type() == "xfs");
  CHECK_FALSE(asked.has_capacity_range());
}

TEST_CASE("a plugin's identity and capabilities are read") {
  Client client;
  ScriptedPlugin plugin(client.socket);
  CHECK(client.get(client.plugin->info(client.within(20s)))->name == "scripted.csi.example.com");
  CHECK(*client.get(client.plugin->stages(client.within(20s))));
  CHECK(*client.get(client.plugin->probe(client.within(20s))));
  plugin.stages = false;
  plugin.ready = false;
  CHECK_FALSE(*client.get(client.plugin->stages(client.within(20s))));
  CHECK_FALSE(*client.get(client.plugin->probe(client.within(20s))));
}

TEST_CASE("every code of a plugin has its meaning here, and its text has no control characters") {
  Client client;
  ScriptedPlugin plugin(client.socket);
  const std::vector<std::pair<StatusCode, errc>> table{{StatusCode::UNAVAILABLE, errc::unavailable},
                                                       {StatusCode::RESOURCE_EXHAUSTED, errc::exhausted},
                                                       {StatusCode::ABORTED, errc::busy},
                                                       {StatusCode::NOT_FOUND, errc::not_found},
                                                       {StatusCode::INTERNAL, errc::internal},
                                                       {StatusCode::UNKNOWN, errc::internal},
                                                       {StatusCode::INVALID_ARGUMENT, errc::invalid_argument},
                                                       {StatusCode::FAILED_PRECONDITION, errc::failed_precondition},
                                                       {StatusCode::ALREADY_EXISTS, errc::already_exists},
                                                       {StatusCode::DEADLINE_EXCEEDED, errc::timed_out},
                                                       {StatusCode::UNIMPLEMENTED, errc::unimplemented}};
  for (const auto& [code, meaning] : table) {
    plugin.say(
        [&, from = code](const std::string&, grpc::ServerContext&) { return grpc::Status(from, "a\nb\x1b[2J"); });
    const auto answer = client.get(client.plugin->unstage("id", "/staging", client.within(20s)));
    REQUIRE_FALSE(answer);
    CHECK(answer.error().code == meaning);
    CHECK_THAT(answer.error().text, ContainsSubstring("a b [2J"));
  }
}

TEST_CASE("a plugin that is not there is unavailable, and is used when it comes") {
  Client client;
  const auto absent = client.get(client.plugin->probe(client.within(20s)));
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code == errc::unavailable);
  CHECK_THAT(absent.error().text, ContainsSubstring(client.socket));
  ScriptedPlugin plugin(client.socket);
  bool found = false;
  for (int tries = 0; tries < 200 && !found; ++tries) {
    found = client.get(client.plugin->probe(client.within(20s))).has_value();
    if (!found) std::this_thread::sleep_for(50ms);
  }
  CHECK(found);
}

TEST_CASE("a plugin that dies inside a call is unavailable") {
  Client client;
  ScriptedPlugin plugin(client.socket);
  std::promise<void> inside;
  plugin.say([&](const std::string&, grpc::ServerContext& context) -> std::optional<grpc::Status> {
    inside.set_value();
    while (!context.IsCancelled()) std::this_thread::sleep_for(1ms);
    return grpc::Status(StatusCode::UNAVAILABLE, "gone");
  });
  std::thread killer([&] {
    inside.get_future().wait();
    plugin.stop();
  });
  const auto answer = client.get(client.plugin->stage(full_mount(), "/staging", client.within(20s)));
  killer.join();
  REQUIRE_FALSE(answer);
  CHECK((answer.error().code == errc::unavailable || answer.error().code == errc::cancelled));
}

TEST_CASE("a program that is not a plugin causes an error, whatever it answers") {
  Client client;
  const NoPlugin garbage(client.socket, "HTTP/1.1 400 Bad Request\r\n\r\n", true);
  const auto answer = client.get(client.plugin->stages(client.within(5s)));
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code != errc::not_found);
}

TEST_CASE("a plugin that never answers delays the caller no longer than its deadline") {
  Client client;
  const auto silent = GENERATE(true, false);
  std::optional<NoPlugin> nobody;
  std::optional<ScriptedPlugin> plugin;
  if (silent) {
    nobody.emplace(client.socket, "", false);
  } else {
    plugin.emplace(client.socket);
    plugin->say([](const std::string&, grpc::ServerContext& context) -> std::optional<grpc::Status> {
      while (!context.IsCancelled()) std::this_thread::sleep_for(1ms);
      return grpc::Status::CANCELLED;
    });
  }
  const auto answer = client.get(client.plugin->stages(client.within(300ms)));
  REQUIRE_FALSE(answer);
  CHECK((answer.error().code == errc::timed_out || answer.error().code == errc::unavailable));
  CHECK((silent || answer.error().code == errc::timed_out));
}

TEST_CASE("a caller that leaves cancels its call") {
  Client client;
  ScriptedPlugin plugin(client.socket);
  std::promise<void> inside, cancelled;
  plugin.say([&](const std::string&, grpc::ServerContext& context) -> std::optional<grpc::Status> {
    inside.set_value();
    while (!context.IsCancelled()) std::this_thread::sleep_for(1ms);
    cancelled.set_value();
    return grpc::Status::CANCELLED;
  });
  CancelScope scope;
  std::thread leaver([&] {
    inside.get_future().wait();
    client.thread.call([&] { scope.cancel(); });
  });
  const auto answer = client.get(client.plugin->unpublish("id", "/target", {time_point::max(), &scope}));
  leaver.join();
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == errc::cancelled);
  CHECK(cancelled.get_future().wait_for(20s) == std::future_status::ready);
}
