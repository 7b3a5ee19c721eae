#include "corbd/rpc/json.hpp"

#include <google/protobuf/descriptor.h>

#include <boost/json/array.hpp>

#include "corbd/core/text.hpp"

namespace corbd::rpc {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

boost::json::value one(const Message& message, const Reflection& get, const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return get.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get.GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get.GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return get.GetFloat(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_STRING:
      return boost::json::string(get.GetString(message, field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return boost::json::string(enum_word(*field->enum_type(), get.GetEnumValue(message, field)));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return json_of(get.GetMessage(message, field));
  }
  return nullptr;
}

boost::json::array all(const Message& message, const Reflection& get, const FieldDescriptor* field) {
  boost::json::array out;
  for (int i = 0; i < get.FieldSize(message, field); ++i) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      out.push_back(json_of(get.GetRepeatedMessage(message, field, i)));
    else
      out.push_back(boost::json::string(get.GetRepeatedString(message, field, i)));
  }
  return out;
}

}  // namespace

std::string enum_word(const EnumDescriptor& of, int number) {
  const auto* value = of.FindValueByNumber(number);
  if (value == nullptr) return std::to_string(number);
  return lower(value->name().substr(of.name().size() + 1));
}

boost::json::object document(boost::json::object of) {
  boost::json::object out{{"schema_version", kSchemaVersion}};
  for (auto& entry : of) out[entry.key()] = std::move(entry.value());
  return out;
}

boost::json::object json_of(const Message& message) {
  const auto& shape = *message.GetDescriptor();
  const auto& get = *message.GetReflection();
  boost::json::object out;
  for (int i = 0; i < shape.field_count(); ++i) {
    const auto* field = shape.field(i);
    if (field->is_repeated())
      out[field->name()] = all(message, get, field);
    else if (field->has_presence() && !get.HasField(message, field))
      out[field->name()] = nullptr;
    else
      out[field->name()] = one(message, get, field);
  }
  return out;
}

}  // namespace corbd::rpc
