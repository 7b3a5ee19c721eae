// Steps for the device: our link, and the kernel's side.
#pragma once

#include <functional>

#include "client_steps.hpp"

namespace corbd::volume {

class DeviceSteps : StepTools {
 public:
  /// Returns the numbers of other volumes' nbd devices, from records and from paths that show a raw device.
  using Numbers = std::function<std::vector<std::uint32_t>(const Volume& volume)>;
  DeviceSteps(StepTools tools, ImageSteps& images, ClientSteps& clients, const HealthTracker& health, Numbers numbers)
      : StepTools(tools), images_(images), clients_(clients), health_(health), numbers_(std::move(numbers)) {}
  task<result<>> start_session(Volume& volume);
  task<result<>> connect(Volume& volume);
  task<result<>> reconfigure(Volume& volume);
  task<result<>> resize(Volume& volume);
  task<result<>> tune(Volume& volume);
  task<result<>> accept_loss(Volume& volume);
  task<result<>> disconnect(Volume& volume);
  task<result<>> stop_session(Volume& volume);

 private:
  /// Logs it once for each session, so that the reason is found again after a restart of the agent.
  void tell_cache_lost(const Volume& volume) const;
  std::uint64_t dead_conn_timeout_s(const Volume& volume) const;
  ImageSteps& images_;
  ClientSteps& clients_;
  const HealthTracker& health_;
  Numbers numbers_;
};

}  // namespace corbd::volume
