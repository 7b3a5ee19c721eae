// The kernel's nbd generic netlink family (linux/nbd-netlink.h). A command runs inside sendmsg under a mutex of the
// whole machine. So one thread makes all commands, one after another.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/device/device.hpp"

struct nl_sock;

namespace corbd::nbd {

/// Returns the NBD_FLAG_* that a new device is announced with. `write_zeroes`: no rbd-nbd may ever serve its number
/// (Config::write_zeroes). WRITE_ZEROES frees space as TRIM does, so a device that offers no discards takes none.
std::uint64_t server_flags(const device::ConnectArgs& args, bool write_zeroes);

/// A netlink socket. Not thread safe; every call may block.
class Netlink {
 public:
  /// failed_precondition: the kernel has no nbd family.
  static result<Netlink> open();

  /// Makes a device of that number and returns its index. The caller keeps `socket` and should close it at once.
  /// in_use: somebody has it open; failed_precondition: the kernel refuses size or block size, or the device is on its
  /// way out.
  result<std::uint32_t> connect(const device::ConnectArgs& args, bool write_zeroes, std::uint32_t index, int socket);
  /// Gives a device with a dead link a new link. If the old link still lives, it succeeds and the kernel drops the
  /// socket.
  result<> reconfigure(const device::ReconnectArgs& args, int socket);
  /// Requires a live link and nothing stuck: see device::Devices::resize.
  result<> resize(std::uint32_t index, const std::string& backend, std::uint64_t bytes);
  /// Succeeds if the device is not connected.
  result<> disconnect(std::uint32_t index);

  /// Makes the socket receive only news of dead links from now on. It never blocks.
  result<> hear_dead_links();
  int fd() const;
  /// Returns the indexes of the devices whose link died since the last call.
  std::vector<std::uint32_t> read_dead_links();

 private:
  struct Free {
    void operator()(nl_sock* socket) const;
  };
  class Message;
  struct Answer;
  Netlink(std::unique_ptr<nl_sock, Free> socket, int family) : socket_(std::move(socket)), family_(family) {}
  result<Answer> transact(Message& message, const std::string& what);

  std::unique_ptr<nl_sock, Free> socket_;
  int family_;
};

}  // namespace corbd::nbd
