#include "corbd/manager/node.hpp"

#include <boost/json/array.hpp>
#include <filesystem>

#include "corbd/host/helpers.hpp"
#include "corbd/host/mountinfo.hpp"
#include "device.hpp"
#include "node_work.hpp"

namespace corbd::manager {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kPatience{20}, kReadPatience{5};  ///< after this a helper is left behind

std::string text_of(const json::object& reply, std::string_view key) { return std::string(reply.at(key).as_string()); }

class HelperNode final : public Node {
 public:
  explicit HelperNode(HelperPool& helpers) : helpers_(helpers), mounts_(host::make_mounts(helpers)) {}

  task<Sight> look(std::string path, Reach reach, Until until) override {
    const auto table = mounts_->table();
    if (!table) co_return unknown(table.error().text);
    const host::Mount *top = nullptr, *inside = nullptr;
    for (const auto& mount : **table) {
      if (mount.target == path) top = &mount;
      if (mount.target.starts_with(path + "/")) inside = &mount;
    }
    if (top == nullptr && reach == Reach::below) top = inside;
    if (top != nullptr) co_return co_await look_at_mount(*top, until);
    const auto reply = co_await ask("look at " + path, {{"op", kLook}, {"path", path}}, until);
    if (reply) co_return sight_from_json(*reply);
    Sight sight = unknown(reply.error().text);
    sight.barred = reply.error().code == errc::invalid_argument;
    co_return sight;
  }

  task<result<std::vector<std::string>>> users(std::string target, Until until) override {
    const auto reply = co_await ask("look who uses " + target, {{"op", kUsers}, {"path", target}}, until);
    if (!reply) co_return reply.error();
    std::vector<std::string> all;
    for (const auto& user : reply->at("users").as_array()) all.emplace_back(user.as_string());
    co_return all;
  }

  task<result<>> make_folder(std::string path, unsigned mode, Until until) override {
    const auto reply = co_await ask("make " + path, {{"op", kMakeFolder}, {"path", path}, {"mode", mode}}, until);
    if (!reply) co_return reply.error();
    co_return result<>();
  }

  task<result<>> put_back(std::string path, Before before, Until until) override {
    json::object body{{"op", kPutBack}, {"path", path}, {"file", before.file}, {"mode", before.mode}};
    if (before.owner) {
      body["uid"] = before.owner->uid;
      body["gid"] = before.owner->gid;
    }
    if (before.folder) body["folder"] = {{"inode", before.folder->inode}, {"born_ns", before.folder->born_ns}};
    const auto reply = co_await ask("put back " + path, std::move(body), until);
    if (!reply) co_return reply.error();
    co_return result<>();
  }

  task<result<>> remove_folder(std::string path, std::string root, Until until) override {
    const auto reply =
        co_await ask("remove the folder " + path, {{"op", kRemoveFolder}, {"path", path}, {"root", root}}, until);
    if (!reply) co_return reply.error();
    co_return result<>();
  }

  task<result<std::string>> resolve(std::string path, Until until) override {
    const auto reply = co_await ask("resolve " + path, {{"op", kResolve}, {"path", path}}, until);
    if (!reply) co_return reply.error();
    co_return text_of(*reply, "path");
  }

 private:
  static Sight unknown(std::string why) { return {Sight::At::unknown, "", std::move(why), 0, {}, {}}; }

  /// By value: the table may be read again meanwhile.
  task<Sight> look_at_mount(host::Mount mount, Until until) {
    Sight sight;
    const std::string device = host::device_of(mount);
    const bool node = mount.fstype == "devtmpfs" && mount.root.size() > 1;
    sight.mount =
        node ? std::string(kDeviceSight) + device
             : mount.source + " (" + std::to_string(mount.dev_major) + ":" + std::to_string(mount.dev_minor) + ")";
    sight.at = Sight::At::mounted;
    sight.text = death_of(mount);
    if (!sight.text.empty()) sight.at = Sight::At::dead;
    if (sight.at == Sight::At::dead) co_return sight;
    // A filesystem answers from memory when its device is long gone, so the device is asked.
    result<> answer;
    if (device.empty())
      answer = co_await ask_filesystem(mount.target, until);
    else
      answer = co_await read_device(device, until);
    if (answer) co_return sight;
    sight.text = answer.error().text;
    sight.at = answer.error().code == errc::io ? Sight::At::dead : Sight::At::unknown;
    co_return sight;
  }

  task<result<>> ask_filesystem(std::string target, Until until) {
    const auto usage = co_await mounts_->usage(target, until);
    if (!usage) co_return usage.error();
    co_return result<>();
  }

  task<result<>> read_device(std::string device, Until until) {
    HelperRequest request;
    request.what = "read /dev/" + device;
    for (const auto& stuck : helpers_.stuck())
      if (stuck.what == request.what)
        co_return Error{errc::unavailable, "/dev/" + device + " does not answer; process " + std::to_string(stuck.pid) +
                                               " still waits for it"};
    request.body = {{"op", kRead}, {"path", "/dev/" + device}};
    request.owner = HelperOwner("", "reads devices");
    request.report_after = kReadPatience;
    const auto reply = co_await helpers_.call(std::move(request), until);
    if (!reply) co_return reply.error();
    co_return result<>();
  }

  task<result<json::object>> ask(std::string what, json::object body, Until until) {
    HelperRequest request;
    request.what = std::move(what);
    // Each path has helpers of its own: one below a server that is gone must not keep the others waiting.
    request.owner = HelperOwner("", text_of(body, "path"));
    request.body = std::move(body);
    request.report_after = kPatience;
    return helpers_.call(std::move(request), until);
  }

  HelperPool& helpers_;
  std::unique_ptr<host::Mounts> mounts_;
};

}  // namespace

std::unique_ptr<Node> make_node(HelperPool& helpers) { return std::make_unique<HelperNode>(helpers); }

}  // namespace corbd::manager
