// One list of checks of a node's kernel behaviour that the agent relies on, through its ports. It runs on the world's
// fake (tests/sim/kernel_contract_test.cpp) and on a real kernel (tests/lab/kernel_contract_lab.cpp, which the story
// `kernel_contract` runs). The headers of tests/support/world/kernel.hpp and mounts.cpp list where the two must differ.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include <boost/asio/co_spawn.hpp>

#include "corbd/device/device.hpp"
#include "corbd/host/host.hpp"
#include "corbd/host/luks.hpp"

namespace corbd::test {

/// A node with one empty image of 64 MiB, and other programs that use its devices.
class ContractKernel {
 public:
  virtual ~ContractKernel() = default;
  virtual device::Devices& devices() = 0;
  virtual host::Mounts& mounts() = 0;
  virtual host::Filesystems& filesystems() = 0;
  virtual host::Luks& luks() = 0;
  virtual image::BlockImage& image() = 0;
  virtual void answers(bool on) = 0;  ///< whether the image answers. After `off` its operations end at the next `on`
  virtual std::string folder() = 0;   ///< folder for mounts

  virtual executor control() = 0;
  virtual Until in(std::chrono::milliseconds time) = 0;
  /// Runs it until `until` is true, for at most that long. False: it is still not true.
  virtual bool drive(const std::function<bool()>& until, std::chrono::milliseconds at_most) = 0;

  // Actions of other programs.
  virtual void begin_io(std::uint32_t index, bool write) = 0;  ///< on a block of its own
  virtual int answered() = 0;                                  ///< number of these that succeeded
  virtual int failed() = 0;
  virtual void open_device(std::uint32_t index) = 0;
  virtual void close_device(std::uint32_t index) = 0;
  virtual void disconnect(std::uint32_t index) = 0;
  virtual void set_read_only(std::uint32_t index) = 0;  ///< `blockdev --setro`
  virtual void open_file(const std::string& target) = 0;
  virtual void close_file(const std::string& target) = 0;
  virtual void unmount_lazily(const std::string& target) = 0;

  /// Runs a task. Its value is set once it has ended.
  template <class T>
  std::shared_ptr<std::optional<T>> begin(task<T> work) {
    const auto out = std::make_shared<std::optional<T>>();
    asio::co_spawn(control(), std::move(work), [out](std::exception_ptr error, T value) {
      if (error) std::rethrow_exception(error);
      out->emplace(std::move(value));
    });
    return out;
  }
  template <class T>
  T run(task<T> work) {
    const auto out = begin(std::move(work));
    if (!drive([&] { return out->has_value(); }, std::chrono::minutes(1)))
      throw std::runtime_error("a call has no end");
    return std::move(**out);
  }
};

/// Runs each check as a section of the test case that calls this, with a kernel of its own.
void check_kernel_contract(const std::function<std::unique_ptr<ContractKernel>()>& make);

}  // namespace corbd::test
