#include "helper_wire.hpp"

#include <sys/socket.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cerrno>

#include "corbd/core/secret_json.hpp"

namespace corbd::helper_wire {
namespace {

namespace json = boost::json;

errc errc_named(std::string_view wanted) {
  for (int i = 0; i <= static_cast<int>(errc_last); ++i)
    if (name(static_cast<errc>(i)) == wanted) return static_cast<errc>(i);
  return errc::internal;
}

std::string_view text_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  const json::string* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string_view() : std::string_view(*text);
}

const json::object* object_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

}  // namespace

std::string pack_request(const HelperRequest& request) {
  json::object message(wiping_storage());
  message["body"] = request.body;
  message["busy_file"] = request.owner.busy_file;
  return serialize_secret(message);
}

std::string pack_reply(const result<json::object>& reply) {
  json::object message;
  if (reply) {
    message["reply"] = *reply;
  } else {
    message["errc"] = name(reply.error().code);
    message["text"] = reply.error().text;
  }
  std::string packed = json::serialize(message);
  if (packed.size() <= kMaxMessage) return packed;
  return pack_reply(Error{errc::internal, "the helper's reply is longer than a message may be"});
}

result<json::object> unpack_reply(std::string_view message) {
  boost::system::error_code failed;
  json::value parsed = json::parse(message, failed);
  json::object* object = failed ? nullptr : parsed.if_object();
  if (object == nullptr) return Error{errc::internal, "the helper's reply is not a JSON object"};
  if (object->contains("errc"))
    return Error{errc_named(text_of(*object, "errc")), std::string(text_of(*object, "text"))};
  const json::object* reply = object_of(*object, "reply");
  if (reply == nullptr) return Error{errc::internal, "the helper's reply has neither a reply nor an error"};
  return *reply;
}

result<Request> unpack_request(std::string_view message) {
  boost::system::error_code failed;
  json::value parsed = parse_secret(message, failed);
  json::object* object = failed ? nullptr : parsed.if_object();
  json::value* body = object == nullptr ? nullptr : object->if_contains("body");
  if (body == nullptr || !body->is_object())
    return Error{errc::internal, "the request to the helper is not a JSON object with a body"};
  // Move it: a copy would be one more secret to wipe.
  return Request{std::move(body->get_object()), std::string(text_of(*object, "busy_file"))};
}

int send(int socket, std::string_view message) {
  for (;;) {
    if (::send(socket, message.data(), message.size(), MSG_NOSIGNAL) >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

Got receive(int socket, int flags, std::string& message) {
  for (;;) {
    message.resize(kMaxMessage);
    const ssize_t got = ::recv(socket, message.data(), message.size(), flags);
    if (got > 0) {
      message.resize(static_cast<std::size_t>(got));
      return Got::message;
    }
    if (got == 0) return Got::closed;
    if (errno == EINTR) continue;
    return errno == EAGAIN ? Got::nothing : Got::closed;
  }
}

}  // namespace corbd::helper_wire
