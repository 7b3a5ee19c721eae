// The real side of the host ports, on helper processes; and the helper's own work.
#pragma once

#include <boost/json/object.hpp>
#include <memory>

#include "corbd/core/helper_pool.hpp"
#include "corbd/host/fscrypt.hpp"
#include "corbd/host/host.hpp"
#include "corbd/host/luks.hpp"

namespace corbd::host {

std::unique_ptr<Mounts> make_mounts(HelperPool& helpers);
std::unique_ptr<Filesystems> make_filesystems(HelperPool& helpers);
std::unique_ptr<Luks> make_luks(HelperPool& helpers);
std::unique_ptr<Fscrypt> make_fscrypt(HelperPool& helpers);

/// Carries out one request of the ports above, in the helper process.
result<boost::json::object> work(const boost::json::object& request);

}  // namespace corbd::host
