// The agent's side: each port call becomes one request of a helper.
#include <boost/json/value.hpp>

#include "corbd/host/daemons.hpp"
#include "corbd/host/helpers.hpp"
#include "mountinfo.hpp"
#include "requests.hpp"

namespace corbd::host {
namespace {

namespace json = boost::json;
using std::chrono::seconds;

// How long a request may take before it is reported stuck. A mkfs or fsck of a large image on a slow cluster is work,
// not a hang.
constexpr seconds kMountPatience{60}, kToolPatience{600}, kPatience{30}, kUsagePatience{5};
// Newer kernels wait for every request in flight. One of another program's dead link ends by its timer, after 30 s.
constexpr seconds kTunePatience{75};

HelperRequest request(std::string what, json::object body, HelperOwner owner, seconds patience) {
  HelperRequest made;
  made.what = std::move(what);
  made.body = std::move(body);
  made.owner = std::move(owner);
  made.report_after = patience;
  return made;
}

task<result<>> perform(HelperPool& helpers, HelperRequest wanted, Until until) {
  const auto reply = co_await helpers.call(std::move(wanted), until);
  if (!reply) co_return reply.error();
  co_return result<>();
}

task<result<Probe>> perform_probe(HelperPool& helpers, HelperRequest wanted, Until until) {
  const auto reply = co_await helpers.call(std::move(wanted), until);
  if (!reply) co_return reply.error();
  co_return probe_from_json(*reply);
}

class HelperMounts final : public Mounts {
 public:
  explicit HelperMounts(HelperPool& helpers) : helpers_(helpers) {}

  result<MountTable> table() const override { return table_.read(); }

  task<result<>> mount(std::string device, std::string fstype, std::string target, std::string flags, HelperOwner owner,
                       Until until) override {
    json::object body{{"op", "mount"}, {"device", device}, {"fstype", fstype}, {"target", target}, {"flags", flags}};
    return perform(helpers_,
                   request("mount " + device + " on " + target, std::move(body), std::move(owner), kMountPatience),
                   until);
  }
  task<result<>> bind(std::string source, std::string target, bool device_node, std::string flags, HelperOwner owner,
                      Until until) override {
    json::object body{
        {"op", "bind"}, {"source", source}, {"target", target}, {"device_node", device_node}, {"flags", flags}};
    return perform(helpers_, request("bind " + source + " on " + target, std::move(body), std::move(owner), kPatience),
                   until);
  }
  task<result<>> limit_io(std::string pod_uid, std::string line, HelperOwner owner, Until until) override {
    json::object body{{"op", "limit_io"}, {"pod_uid", pod_uid}, {"line", line}};
    return perform(helpers_, request("limit the I/O of pod " + pod_uid, std::move(body), std::move(owner), kPatience),
                   until);
  }
  task<result<std::uint64_t>> trim(std::string target, HelperOwner owner, Until until) override {
    json::object body{{"op", "trim"}, {"target", target}};
    const auto reply =
        co_await helpers_.call(request("trim " + target, std::move(body), std::move(owner), kToolPatience), until);
    if (!reply) co_return reply.error();
    co_return reply->at("bytes").to_number<std::uint64_t>();
  }
  task<result<Usage>> usage(std::string target, Until until) override {
    const std::string what = "look how full " + target + " is";
    for (const auto& stuck : helpers_.stuck())
      if (stuck.what == what)
        co_return Error{errc::unavailable, what + ": process " + std::to_string(stuck.pid) + " still hangs in it"};
    const auto reply = co_await helpers_.call(
        request(what, {{"op", "usage"}, {"target", target}}, HelperOwner("", "looks at filesystems"), kUsagePatience),
        until);
    if (!reply) co_return reply.error();
    co_return usage_from_json(*reply);
  }
  task<result<>> unmount(std::string target, bool sync, HelperOwner owner, Until until) override {
    json::object body{{"op", "unmount"}, {"target", target}, {"sync", sync}};
    return perform(helpers_, request("unmount " + target, std::move(body), std::move(owner), kMountPatience), until);
  }

 private:
  HelperPool& helpers_;
  mutable MountReader table_;
};

class HelperFilesystems final : public Filesystems {
 public:
  explicit HelperFilesystems(HelperPool& helpers) : helpers_(helpers) {}

  task<result<Probe>> probe(std::string device, HelperOwner owner, Until until) override {
    json::object body{{"op", "probe"}, {"device", device}};
    return perform_probe(helpers_, request("probe " + device, std::move(body), std::move(owner), kPatience), until);
  }
  task<result<std::string>> mkfs(std::string device, std::string fstype, std::string options, MkfsFor made_for,
                                 HelperOwner owner, Until until) override {
    json::object body{{"op", "mkfs"},       {"device", device},          {"fstype", fstype},
                      {"options", options}, {"zeroes", made_for.zeroes}, {"files_encrypted", made_for.files_encrypted}};
    const auto reply = co_await helpers_.call(
        request("mkfs." + fstype + " " + device, std::move(body), std::move(owner), kToolPatience), until);
    if (!reply) co_return reply.error();
    co_return std::string(reply->at("beyond_oldest").as_string());
  }
  task<result<>> fsck(std::string device, std::string fstype, std::string options, HelperOwner owner,
                      Until until) override {
    json::object body{{"op", "fsck"}, {"device", device}, {"fstype", fstype}, {"options", options}};
    return perform(helpers_, request("fsck " + device, std::move(body), std::move(owner), kToolPatience), until);
  }
  task<result<Extent>> extent(std::string device, std::string fstype, std::string target, HelperOwner owner,
                              Until until) override {
    json::object body{{"op", "extent"}, {"device", device}, {"fstype", fstype}, {"target", target}};
    const auto reply = co_await helpers_.call(
        request("look how large " + target + " is", std::move(body), std::move(owner), kPatience), until);
    if (!reply) co_return reply.error();
    co_return extent_from_json(*reply);
  }
  task<result<>> grow(std::string device, std::string fstype, std::string target, HelperOwner owner,
                      Until until) override {
    json::object body{{"op", "grow"}, {"device", device}, {"fstype", fstype}, {"target", target}};
    return perform(
        helpers_, request("grow " + fstype + " of " + device, std::move(body), std::move(owner), kToolPatience), until);
  }
  task<result<>> check_unused(std::string device, HelperOwner owner, Until until) override {
    json::object body{{"op", "check_unused"}, {"device", device}};
    return perform(helpers_, request("check that nobody uses " + device, std::move(body), std::move(owner), kPatience),
                   until);
  }
  task<result<>> tune(std::string kernel_name, NumberUse use, HelperOwner owner, Until until) override {
    json::object body{{"op", "tune"}, {"name", kernel_name}, {"read_only", use.read_only}, {"flush", use.flush}};
    return perform(
        helpers_, request("tune the queue of " + kernel_name, std::move(body), std::move(owner), kTunePatience), until);
  }

 private:
  HelperPool& helpers_;
};

task<result<OtherServer>> perform_daemons(HelperPool& helpers, HelperRequest wanted, Until until) {
  const auto reply = co_await helpers.call(std::move(wanted), until);
  if (!reply) co_return reply.error();
  const auto* serving = reply->if_contains("serving");
  const auto* uncached = reply->if_contains("uncached");
  const Error unclear{errc::internal, "the helper's reply about rbd-nbd is not understood"};
  if (serving == nullptr || !serving->is_array() || uncached == nullptr || !uncached->is_string()) co_return unclear;
  OtherServer other{{}, std::string(uncached->get_string())};
  for (const auto& pid : serving->get_array()) {
    if (!pid.is_int64()) co_return unclear;
    other.pids.push_back(static_cast<int>(pid.get_int64()));
  }
  co_return other;
}

class HelperDaemons final : public Daemons {
 public:
  explicit HelperDaemons(HelperPool& helpers) : helpers_(helpers) {}

  task<result<OtherServer>> serving(std::uint32_t index, std::string backend, Until until) override {
    json::object body{{"op", "daemons"}, {"index", index}, {"backend", backend}};
    return perform_daemons(helpers_,
                           request("look for rbd-nbd", std::move(body), HelperOwner("", "rbd-nbd"), kPatience), until);
  }
  task<result<>> dismiss(std::uint32_t index, std::string backend, Until until) override {
    json::object body{{"op", "dismiss"}, {"index", index}, {"backend", backend}};
    return perform(helpers_,
                   request("end rbd-nbd of " + backend, std::move(body),
                           HelperOwner("", "rbd-nbd that is asked to end"), kMountPatience),
                   until);
  }

 private:
  HelperPool& helpers_;
};

}  // namespace

std::unique_ptr<Daemons> make_daemons(HelperPool& helpers) { return std::make_unique<HelperDaemons>(helpers); }
std::unique_ptr<Mounts> make_mounts(HelperPool& helpers) { return std::make_unique<HelperMounts>(helpers); }
std::unique_ptr<Filesystems> make_filesystems(HelperPool& helpers) {
  return std::make_unique<HelperFilesystems>(helpers);
}

}  // namespace corbd::host
