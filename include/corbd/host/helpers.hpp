// Implements the host ports on helper processes, and the helper's own work.
#pragma once

#include <memory>
#include <span>

#include "corbd/core/helper_operation.hpp"
#include "corbd/core/helper_pool.hpp"
#include "corbd/host/fscrypt.hpp"
#include "corbd/host/host.hpp"
#include "corbd/host/luks.hpp"

namespace corbd::host {

std::unique_ptr<Mounts> make_mounts(HelperPool& helpers);
std::unique_ptr<Filesystems> make_filesystems(HelperPool& helpers);
std::unique_ptr<Luks> make_luks(HelperPool& helpers);
std::unique_ptr<Fscrypt> make_fscrypt(HelperPool& helpers);

/// The operations of a helper for this room.
std::span<const helper::Known> helper_operations();

}  // namespace corbd::host
