// The agent's side. It reads sysfs here, and a helper writes it.
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include "corbd/core/process.hpp"
#include "corbd/krbd/kernel_client.hpp"
#include "corbd/krbd/sysfs.hpp"
#include "requests.hpp"

namespace corbd::krbd {
namespace {

/// The kernel waits a minute for the monitors, then for the lock.
constexpr std::chrono::seconds kPatience{150};

class SysfsClient final : public device::KernelClient {
 public:
  SysfsClient(HelperPool& helpers, std::string sysfs) : helpers_(helpers), sysfs_(std::move(sysfs)) {}

  result<device::Abilities> abilities() const override { return read_abilities(sysfs_, kernel_release()); }
  result<std::vector<device::Mapped>> inventory() const override { return read_inventory(sysfs_); }

  task<result<>> map(device::MapArgs args, HelperOwner owner, Until until) override {
    return ask("map image " + args.name.text(), to_json(args), std::move(owner), until);
  }

  task<result<>> unmap(std::uint32_t index, std::string options, HelperOwner owner, Until until) override {
    boost::json::object body{{"op", kUnmap}, {"index", index}, {"options", options}};
    return ask("unmap " + device::path(index, device::Kind::krbd), std::move(body), std::move(owner), until);
  }

 private:
  task<result<>> ask(std::string what, boost::json::object body, HelperOwner owner, Until until) {
    body["sysfs"] = sysfs_;
    HelperRequest request;
    request.what = std::move(what);
    request.body = std::move(body);
    request.owner = std::move(owner);
    request.report_after = kPatience;
    const auto reply = co_await helpers_.call(std::move(request), until);
    if (!reply) co_return reply.error();
    co_return result<>();
  }

  HelperPool& helpers_;
  const std::string sysfs_;
};

}  // namespace

std::unique_ptr<device::KernelClient> make_kernel_client(HelperPool& helpers, std::string sysfs) {
  return std::make_unique<SysfsClient>(helpers, std::move(sysfs));
}

}  // namespace corbd::krbd
