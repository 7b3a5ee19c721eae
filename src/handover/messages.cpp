#include "messages.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <limits>

#include "corbd/core/fields_json.hpp"

namespace corbd::handover {
namespace {

namespace json = boost::json;

// Limit of a message's volume IDs in bytes. One listed volume is enough to refuse.
constexpr std::size_t kMostUnopenedBytes = 48u << 10;

result<json::object> parse(std::string_view message) {
  boost::system::error_code failed;
  json::value parsed = json::parse(message, failed);
  if (failed || !parsed.is_object()) return Error{errc::internal, "the other agent's message is not a JSON object"};
  return std::move(parsed.get_object());
}

std::string text_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::optional<std::int64_t> number_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_int64()) return std::nullopt;
  return value->get_int64();
}

std::string pack_ready(const PeerMessage& peer_message) {
  json::object object{{"ready", true}};
  json::array unopened;
  std::size_t bytes = 0;
  for (const auto& volume : peer_message.unopened_images) {
    constexpr std::size_t kAround = 3;  // quotes and comma around an ID
    bytes += volume.size() + kAround;
    if (bytes <= kMostUnopenedBytes) unopened.emplace_back(volume);
  }
  if (!unopened.empty()) object["cold"] = std::move(unopened);
  return json::serialize(object);
}

result<PeerMessage> unpack_ready(const json::object& object) {
  PeerMessage peer_message{PeerMessage::What::ready};
  const json::value* unopened = object.if_contains("cold");
  if (unopened == nullptr) return peer_message;
  if (!unopened->is_array()) return Error{errc::internal, "the volumes in the other agent's message are not a list"};
  for (const auto& volume : unopened->get_array()) {
    if (!volume.is_string()) return Error{errc::internal, "the other agent's message has a volume without a name"};
    peer_message.unopened_images.emplace_back(volume.get_string());
  }
  return peer_message;
}

Error without(const char* what) { return {errc::internal, std::string("the other agent's message has no ") + what}; }

result<std::uint32_t> device_of(const json::object& object, std::string_view key) {
  const auto device = number_of(object, key);
  if (!device || *device < 0 || *device > std::numeric_limits<std::uint32_t>::max()) return without("device");
  return static_cast<std::uint32_t>(*device);
}

/// An agent knows every kind that its predecessor has: the kinds are part of the version of records.
result<device::Kind> kind_of(const json::object& object) {
  if (!object.contains("kind")) return device::Kind();
  const auto* found = device::find_kind(text_of(object, "kind"));
  if (found == nullptr || !found->served) return without("kind of device that an agent serves");
  return found->kind;
}

json::object with_kind(json::object message, const PeerMessage& peer_message) {
  if (peer_message.kind != device::Kind()) message["kind"] = traits(peer_message.kind).name;
  return message;
}

/// Under another name the API server knows none of this node's volumes, and kubelet has other paths for them.
std::optional<std::string> other_name(const std::string& flag, const std::string& next, const std::string& own) {
  if (next.empty() || own.empty() || next == own) return std::nullopt;
  return "this agent has " + flag + " " + own + ", the next one " + next +
         ": give it the same, or unstage every volume of this node before the change";
}

}  // namespace

std::string pack(const Hello& hello) {
  json::object object{{"protocol", hello.protocol}};
  for (auto& field : fields::to_json(hello.side)) object.emplace(field.key(), std::move(field.value()));
  return json::serialize(object);
}

result<Hello> unpack_hello(std::string_view message) {
  const auto object = parse(message);
  if (!object) return object.error();
  const auto protocol = number_of(*object, "protocol");
  if (!protocol) return without("protocol");
  auto side = fields::from_json<Side>(*object, "the other agent's message", {errc::internal});
  if (!side) return side.error();
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  return Hello{static_cast<int>(std::clamp<std::int64_t>(*protocol, 0, most)), std::move(*side)};
}

std::optional<std::string> refusal(const Hello& next, const Side& own) {
  const std::string who = "this agent (" + own.version + ")";
  if (next.protocol != kProtocol)
    return who + " speaks version " + std::to_string(kProtocol) + " of the handover, the next one version " +
           std::to_string(next.protocol) + ": end this one first; its devices wait meanwhile";
  if (next.side.state != own.state)
    return who + " has another --state-dir than the next one, with the same --runtime-dir: give both the same";
  if (next.side.records < own.records)
    return who + " writes records of version " + std::to_string(own.records) +
           ", which the next one does not know: start a newer one";
  if (auto other = other_name("--nodeid", next.side.node, own.node)) return other;
  return other_name("--drivername", next.side.driver, own.driver);
}

std::string pack_answer(const std::optional<std::string>& refusal) {
  if (!refusal) return json::serialize(json::object{{"answer", "yes"}});
  return json::serialize(json::object{{"answer", "no"}, {"why", *refusal}});
}

result<> unpack_answer(std::string_view message) {
  const auto object = parse(message);
  if (!object) return object.error();
  const std::string answer = text_of(*object, "answer");
  if (answer == "yes") return {};
  if (answer == "no") return Error{errc::failed_precondition, text_of(*object, "why")};
  return without("answer");
}

std::string pack(const PeerMessage& peer_message) {
  switch (peer_message.what) {
    case PeerMessage::What::ready:
      return pack_ready(peer_message);
    case PeerMessage::What::begins:
      return json::serialize(json::object{{"begins", true}});
    case PeerMessage::What::loaded:
      return json::serialize(json::object{{"loaded", true}});
    case PeerMessage::What::lock:
      return json::serialize(json::object{{"lock", true}});
    case PeerMessage::What::listener:
      return json::serialize(json::object{{"listener", json::object{{"registered", peer_message.registered}}}});
    case PeerMessage::What::link:
      return json::serialize(json::object{
          {"link", with_kind(json::object{{"volume", peer_message.volume_id}, {"device", peer_message.device}},
                             peer_message)}});
    case PeerMessage::What::served:
      return json::serialize(with_kind(json::object{{"served", peer_message.device}}, peer_message));
    case PeerMessage::What::end:
      break;
  }
  return json::serialize(json::object{{"end", true}});
}

result<PeerMessage> unpack_message(std::string_view message) {
  const auto object = parse(message);
  if (!object) return object.error();
  if (object->contains("ready")) return unpack_ready(*object);
  if (object->contains("begins")) return PeerMessage{PeerMessage::What::begins};
  if (object->contains("loaded")) return PeerMessage{PeerMessage::What::loaded};
  if (object->contains("lock")) return PeerMessage{PeerMessage::What::lock};
  if (object->contains("end")) return PeerMessage{PeerMessage::What::end};
  if (const json::value* listener = object->if_contains("listener")) {
    const json::value* registered = listener->is_object() ? listener->get_object().if_contains("registered") : nullptr;
    if (registered == nullptr || !registered->is_bool()) return without("state of a listener");
    return PeerMessage{.what = PeerMessage::What::listener, .registered = registered->get_bool()};
  }
  if (object->contains("served")) {
    const auto device = device_of(*object, "served");
    const auto kind = kind_of(*object);
    if (!device) return device.error();
    if (!kind) return kind.error();
    return PeerMessage{.what = PeerMessage::What::served, .device = *device, .kind = *kind};
  }
  const json::value* link = object->if_contains("link");
  if (link == nullptr || !link->is_object()) return without("known message");
  const auto device = device_of(link->get_object(), "device");
  const auto kind = kind_of(link->get_object());
  if (!device) return device.error();
  if (!kind) return kind.error();
  return PeerMessage{.what = PeerMessage::What::link,
                     .volume_id = text_of(link->get_object(), "volume"),
                     .device = *device,
                     .kind = *kind};
}

}  // namespace corbd::handover
