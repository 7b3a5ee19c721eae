// Any message as JSON with the names of its .proto file: every field, numbers as numbers, enumerators as their words,
// null for what is absent. Repeated fields are of messages or text.
#pragma once

#include <google/protobuf/message.h>

#include <boost/json/object.hpp>
#include <string>

namespace corbd::cli {

boost::json::object json_of(const google::protobuf::Message& message);

/// HEALTH_STAGED of enum Health: "staged". The number itself for one that this version does not know.
std::string word(const google::protobuf::EnumDescriptor& of, int number);

}  // namespace corbd::cli
