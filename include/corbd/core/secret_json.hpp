// JSON that contains secrets. Boost's own functions leave copies in buffers on the stack, and in those that they
// outgrow.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/storage_ptr.hpp>
#include <boost/json/value.hpp>
#include <boost/system/error_code.hpp>
#include <string>
#include <string_view>

namespace corbd {

/// Returns storage that overwrites freed memory, so a value in it needs no wipe().
boost::json::storage_ptr wiping_storage();

/// Works like boost::json::serialize(). The returned text is the only copy; the caller wipes it.
std::string serialize_secret(const boost::json::object& object);

/// Works like boost::json::parse(), and puts the value into wiping_storage().
boost::json::value parse_secret(std::string_view text, boost::system::error_code& failed);

}  // namespace corbd
