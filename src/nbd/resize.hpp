// Lets a helper give the command of a resize to the kernel. Newer kernels wait in it for the requests in flight, and no
// signal ends that wait. A process that has the sockets would keep them until the requests are answered, and nobody
// else could answer them.
#pragma once

#include <cstdint>
#include <string>

#include "corbd/core/helper_operation.hpp"
#include "corbd/device/values.hpp"

namespace corbd::nbd {

struct Resize {
  using Reply = void;
  static constexpr std::string_view name = "nbd_resize";
  static constexpr std::chrono::seconds patience{30};
  std::uint32_t index = 0;
  std::string backend;
  std::uint64_t bytes = 0;
  std::string sysfs;
  static constexpr std::tuple fields{
      fields::required("index", &Resize::index), fields::required("backend", &Resize::backend),
      fields::required("bytes", &Resize::bytes), fields::required("sysfs", &Resize::sysfs)};
  std::string what() const { return "resize " + device::path(index) + " of " + backend; }
};
result<> perform(const Resize& asked);

}  // namespace corbd::nbd
