#include "corbd/manager/node.hpp"

#include <filesystem>

#include "corbd/host/helpers.hpp"
#include "corbd/host/mountinfo.hpp"
#include "device.hpp"
#include "node_work.hpp"

namespace corbd::manager {
namespace {

class HelperNode final : public Node {
 public:
  explicit HelperNode(HelperPool& helpers) : helpers_(helpers), mounts_(host::make_mounts(helpers)) {}

  task<PathState> look(std::string path, Reach reach, Until until) override {
    const auto table = mounts_->table();
    if (!table) co_return unknown(table.error().text);
    const host::Mount *top = nullptr, *inside = nullptr;
    for (const auto& [at, row] : (*table)->rows()) {
      if (row.mount.target == path) top = &row.mount;
      if (row.mount.target.starts_with(path + "/")) inside = &row.mount;
    }
    if (top == nullptr && reach == Reach::below) top = inside;
    if (top != nullptr) co_return co_await look_at_mount(*top, until);
    const auto seen = co_await ask(operation::Look{path}, until);
    if (seen) co_return *seen;
    PathState sight = unknown(seen.error().text);
    sight.barred = seen.error().code == errc::invalid_argument;
    co_return sight;
  }

  task<result<std::vector<std::string>>> users(std::string target, Until until) override {
    return ask(operation::FindUsers{target}, until);
  }

  task<result<>> make_folder(std::string path, unsigned mode, Until until) override {
    return ask(operation::MakeFolder{path, mode}, until);
  }

  task<result<>> put_back(std::string path, Before before, Until until) override {
    return ask(operation::PutBack{path, before}, until);
  }

  task<result<>> remove_folder(std::string path, std::string root, Until until) override {
    return ask(operation::RemoveFolder{path, root}, until);
  }

  task<result<std::string>> resolve(std::string path, Until until) override {
    return ask(operation::Resolve{path}, until);
  }

 private:
  static PathState unknown(std::string why) { return {PathState::At::unknown, "", std::move(why), 0, {}, {}}; }

  /// Takes a copy, because the table may be read again meanwhile.
  task<PathState> look_at_mount(host::Mount mount, Until until) {
    PathState sight;
    const std::string device = host::device_of(mount);
    const bool node = mount.fstype == "devtmpfs" && mount.root.size() > 1;
    sight.mount =
        node ? std::string(kDevicePrefix) + device
             : mount.source + " (" + std::to_string(mount.dev_major) + ":" + std::to_string(mount.dev_minor) + ")";
    sight.at = PathState::At::mounted;
    sight.text = death_of(mount);
    if (!sight.text.empty()) sight.at = PathState::At::dead;
    if (sight.at == PathState::At::dead) co_return sight;
    // A filesystem answers from memory long after its device is gone, so ask the device.
    result<> answer;
    if (device.empty())
      answer = co_await ask_filesystem(mount.target, until);
    else
      answer = co_await read_device(device, until);
    if (answer) co_return sight;
    sight.text = answer.error().text;
    sight.at = answer.error().code == errc::io ? PathState::At::dead : PathState::At::unknown;
    co_return sight;
  }

  task<result<>> ask_filesystem(std::string target, Until until) {
    const auto usage = co_await mounts_->usage(target, until);
    if (!usage) co_return usage.error();
    co_return result<>();
  }

  task<result<>> read_device(std::string device, Until until) {
    const operation::ReadDevice wanted{"/dev/" + device};
    for (const auto& stuck : helpers_.stuck())
      if (stuck.what == wanted.what())
        co_return Error{errc::unavailable,
                        wanted.path + " does not answer; process " + std::to_string(stuck.pid) + " still waits for it"};
    co_return co_await helper::call(helpers_, wanted, HelperOwner("", "reads devices"), until);
  }

  /// Each path has helpers of its own: one below a server that is gone must not keep the others waiting.
  template <class Operation>
  task<result<typename Operation::Reply>> ask(Operation wanted, Until until) {
    HelperOwner owner("", wanted.path);
    return helper::call(helpers_, std::move(wanted), std::move(owner), until);
  }

  HelperPool& helpers_;
  std::unique_ptr<host::Mounts> mounts_;
};

}  // namespace

std::unique_ptr<Node> make_node(HelperPool& helpers) { return std::make_unique<HelperNode>(helpers); }

}  // namespace corbd::manager
