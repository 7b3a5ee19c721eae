#include "devices.hpp"

#include "corbd/nbd/devices.hpp"

namespace corbd::agent {
namespace {

nbd::Config nbd_config(const Options& options, keeper::Client* keeper, keeper::StoredFds stored) {
  nbd::Config config;
  config.slow_request = std::chrono::seconds(options.slow_request_s);
  config.io_threads = static_cast<std::uint32_t>(options.io_threads);
  config.write_zeroes = options.no_rbd_nbd;
  config.fd_store = keeper;
  config.commands_lock = options.runtime_dir + "/nbd.busy";
  for (auto& memory : stored.memory) config.memory.emplace(memory.token, std::move(memory.file));
  for (auto& held : stored.links)
    config.inherited.emplace_back(held.link.device,
                                  nbd::InheritedLink{std::move(held.link.backend), std::move(held.socket),
                                                     std::move(held.ledger), held.link.token});
  return config;
}

}  // namespace

std::map<device::Kind, std::unique_ptr<device::Devices>> make_devices(executor control, Clock& clock,
                                                                      const Options& options, keeper::Client* keeper,
                                                                      keeper::StoredFds stored) {
  std::map<device::Kind, std::unique_ptr<device::Devices>> ports;
  ports[device::Kind::nbd] = nbd::make_devices(control, clock, nbd_config(options, keeper, std::move(stored)));
  return ports;
}

}  // namespace corbd::agent
