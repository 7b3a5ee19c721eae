#include "requests.hpp"

#include <algorithm>
#include <array>

namespace corbd::host {
namespace {

struct KindName {
  Probe::Kind kind;
  std::string_view name;
};
constexpr std::array kKinds{
    KindName{Probe::Kind::nothing, "nothing"},       KindName{Probe::Kind::filesystem, "filesystem"},
    KindName{Probe::Kind::partitions, "partitions"}, KindName{Probe::Kind::other, "other"},
    KindName{Probe::Kind::ambivalent, "ambivalent"},
};

}  // namespace

boost::json::object probe_to_json(const Probe& probe) {
  const auto* known =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const KindName& k) { return k.kind == probe.kind; });
  return {{"kind", known->name}, {"type", probe.type}};
}

result<Probe> probe_from_json(const boost::json::object& reply) {
  const auto* kind = reply.if_contains("kind");
  const auto* type = reply.if_contains("type");
  if (kind != nullptr && kind->is_string() && type != nullptr && type->is_string())
    for (const auto& known : kKinds)
      if (known.name == std::string_view(kind->get_string())) return Probe{known.kind, std::string(type->get_string())};
  return Error{errc::internal, "the helper's reply to a probe is not understood"};
}

}  // namespace corbd::host
