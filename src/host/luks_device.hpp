// A context of libcryptsetup, and what the costs of its key slots are.
#pragma once

#include <libcryptsetup.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "corbd/core/result.hpp"

namespace corbd::host::ops {

/// A context, and the library's messages during its use.
struct LuksDevice {
  struct Free {
    void operator()(crypt_device* made) const { crypt_free(made); }
  };
  std::string messages;
  std::unique_ptr<crypt_device, Free> context;
  Error failed(const std::string& doing, int code) const;
};

/// The caller has exclusive use of the volume, so the library needs no lock files below /run.
result<> begin(LuksDevice& on, const std::string& device);
/// Reads the header.
result<> load(LuksDevice& on, const std::string& device);
/// False if there is no such mapping.
result<bool> find_mapping(LuksDevice& on, const std::string& mapping);

std::vector<int> used_slots(crypt_device* context);
/// Returns the KiB needed to try the costliest key slot.
std::uint32_t memory_of(crypt_device* context);
/// Refuses a header whose key slots cost more memory than there is, or too much time.
result<> check_costs(const LuksDevice& on, const std::string& device);

}  // namespace corbd::host::ops
