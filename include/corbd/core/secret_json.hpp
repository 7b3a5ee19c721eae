// JSON with secrets in it. Boost's own functions leave copies in buffers on the stack, and in those that they outgrow.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/storage_ptr.hpp>
#include <boost/json/value.hpp>
#include <boost/system/error_code.hpp>
#include <string>
#include <string_view>

namespace corbd {

/// Overwrites what is given back to it: a value there needs no wipe().
boost::json::storage_ptr wiping_storage();

/// As boost::json::serialize(). The text is the only copy, and to be wiped.
std::string serialize_secret(const boost::json::object& object);

/// As boost::json::parse(), into a value in wiping_storage().
boost::json::value parse_secret(std::string_view text, boost::system::error_code& failed);

}  // namespace corbd
