// Makes the line that maps an image: "<monitors> <options> <pool> <image> <snapshot>". Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/image/image.hpp"

namespace corbd::krbd {

/// Splits config.json's entries into single addresses. An entry may list several, "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]"
/// those of one monitor.
std::vector<std::string> each_monitor(const std::vector<std::string>& monitors);

/// Adds ms_mode=prefer-crc to options that name no mode, if the monitors speak only msgr2.
std::string with_ms_mode(std::string options, const std::vector<std::string>& monitors);

/// Returns the monitors of config.json for the kernel: addresses of one protocol. That is msgr2 if the options have a
/// ms_mode other than "legacy". As in Ceph, port 6789 and "v1:" mean the old protocol, 3300 and "v2:" the new one, and
/// no port means both. failed_precondition: no monitor speaks the protocol.
result<std::string> kernel_monitors(const std::vector<std::string>& monitors, bool msgr2);

struct AddLine {
  std::vector<std::string> monitors;
  std::string user;      ///< without "client."
  std::string key_name;  ///< name of the key in the kernel's keyring
  image::Name name;
  bool read_only = false;
  std::string options;
};
/// failed_precondition: a name that the line cannot carry.
result<std::string> add_line(const AddLine& of);

}  // namespace corbd::krbd
