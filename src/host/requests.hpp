// The words of a request and reply between the ports and the helper.
#pragma once

#include <boost/json/object.hpp>
#include <string_view>

#include "corbd/core/result.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/host/host.hpp"
#include "corbd/host/kernel_needs.hpp"
#include "corbd/host/luks.hpp"

namespace corbd::host {

/// In base64: a passphrase may be any bytes, and JSON's texts are UTF-8.
Secret in_base64(const Secret& secret);
/// Throws where the request has none there.
Secret secret_from_json(const boost::json::object& request, std::string_view key);
boost::json::object probe_to_json(const Probe& probe);
result<Probe> probe_from_json(const boost::json::object& reply);
boost::json::object luks_header_to_json(const LuksHeader& header);
result<LuksHeader> luks_header_from_json(const boost::json::object& reply);
boost::json::object folder_to_json(EncryptedFolder folder);
result<EncryptedFolder> folder_from_json(const boost::json::object& reply);
boost::json::object extent_to_json(const Extent& extent);
result<Extent> extent_from_json(const boost::json::object& reply);
boost::json::object usage_to_json(const Usage& usage);
result<Usage> usage_from_json(const boost::json::object& reply);
boost::json::object kernel_needs_to_json(const KernelNeeds& needs);
result<KernelNeeds> kernel_needs_from_json(const boost::json::object& reply);

}  // namespace corbd::host
