// The agent's side. It reads sysfs here, and a helper writes it.
#include "corbd/core/process.hpp"
#include "corbd/krbd/kernel_client.hpp"
#include "corbd/krbd/sysfs.hpp"
#include "operations.hpp"

namespace corbd::krbd {
namespace {

class SysfsClient final : public device::KernelClient {
 public:
  SysfsClient(HelperPool& helpers, std::string sysfs) : helpers_(helpers), sysfs_(std::move(sysfs)) {}

  result<device::Abilities> abilities() const override { return read_abilities(sysfs_, kernel_release()); }
  result<std::vector<device::Mapped>> inventory() const override { return read_inventory(sysfs_); }

  task<result<>> map(device::MapArgs args, HelperOwner owner, Until until) override {
    return helper::call(helpers_, Map{sysfs_, std::move(args)}, std::move(owner), until);
  }

  task<result<>> unmap(std::uint32_t index, std::string options, HelperOwner owner, Until until) override {
    return helper::call(helpers_, Unmap{sysfs_, index, options}, std::move(owner), until);
  }

 private:
  HelperPool& helpers_;
  const std::string sysfs_;
};

}  // namespace

std::unique_ptr<device::KernelClient> make_kernel_client(HelperPool& helpers, std::string sysfs) {
  return std::make_unique<SysfsClient>(helpers, std::move(sysfs));
}

}  // namespace corbd::krbd
