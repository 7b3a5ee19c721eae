// Turns any message into JSON with the names of its .proto file. It has every field, numbers as numbers, enumerators as
// words, and null for an absent field. Repeated fields must hold messages or text.
#pragma once

#include <google/protobuf/message.h>

#include <boost/json/object.hpp>
#include <string>

namespace corbd::rpc {

/// Raise it when a field goes, or means something else. A new field does not change it (docs/serving.md#json).
inline constexpr int kSchemaVersion = 1;

/// Makes the document of `-o json`: the object behind its version.
boost::json::object document(boost::json::object of);

boost::json::object json_of(const google::protobuf::Message& message);

/// Returns "staged" for HEALTH_STAGED of enum Health. For a value that this version does not know, the number itself.
std::string enum_word(const google::protobuf::EnumDescriptor& of, int number);

}  // namespace corbd::rpc
