// What Nomad's environment asks of the plugin for dynamic host volumes.
#include "host_volume.hpp"

#include <map>

#include "support/catch.hpp"

using namespace corbd;
using mounting::HostVolume;

namespace {

using Variables = std::map<std::string, std::string>;

Variables asked(const std::string& parameters) {
  return {{"DHV_OPERATION", "create"}, {"DHV_VOLUMES_DIR", "/opt/nomad/host_volumes"},
          {"DHV_VOLUME_ID", "7-9"},    {"DHV_CAPACITY_MIN_BYTES", "1048576"},
          {"DHV_NAMESPACE", "shop"},   {"DHV_PARAMETERS", parameters}};
}

result<HostVolume> of(const Variables& variables, const std::string& operation = "create") {
  return mounting::host_volume_of(operation, [&](const char* name) {
    const auto place = variables.find(name);
    return place == variables.end() ? std::string() : place->second;
  });
}

std::string error_of(const std::string& parameters) {
  const auto volume = of(asked(parameters));
  return volume ? "" : volume.error().text;
}

}  // namespace

TEST_CASE("a host volume is mounted below Nomad's folder, by its ID, with its parameters") {
  const auto volume = of(asked(R"({"image": "rbd/db", "user": "nomad", "options": "noatime", "read-only": "true",
                                   "attribute.1": "mapOptions=nbd:rbd_read_from_replica_policy=balance",
                                   "attribute.2": "tryOtherMounters=true"})"));
  REQUIRE(volume);
  CHECK(volume->spec.dir == "/opt/nomad/host_volumes/7-9");
  CHECK(volume->spec.image == "rbd/db");
  CHECK(volume->spec.user == "nomad");
  CHECK(volume->spec.options == "noatime");
  CHECK(volume->spec.read_only);
  CHECK(volume->spec.attributes.size() == 2);
  CHECK(volume->min_bytes == 1048576);
}

TEST_CASE("a host volume goes from where Nomad says that it is, whatever its parameters are") {
  auto variables = asked("null");
  variables["DHV_CREATED_PATH"] = "/opt/elsewhere/7-9";
  const auto volume = of(variables, "delete");
  REQUIRE(volume);
  CHECK(volume->spec.dir == "/opt/elsewhere/7-9");
}

TEST_CASE("a host volume whose creation failed goes from where it would have been") {
  const auto volume = of(asked("null"), "delete");
  REQUIRE(volume);
  CHECK(volume->spec.dir == "/opt/nomad/host_volumes/7-9");
}

TEST_CASE("parameters that make no mount are refused by name") {
  for (const char* none : {"null", "", "{}", "[1]", R"({"user": "x"})"})
    CHECK_THAT(error_of(none), ContainsSubstring("parameters { image ="));
  CHECK_THAT(error_of(R"({"image": "rbd/db", "dir": "/"})"), ContainsSubstring("dir is Nomad's to choose"));
  CHECK_THAT(error_of(R"({"image": "rbd/db", "user": "a\ndir = /"})"), ContainsSubstring("user is not a text of one"));
  CHECK_THAT(error_of(R"({"image": "rbd/db", "block": 1})"), ContainsSubstring("block is not a text"));
  CHECK_THAT(error_of(R"({"image": "rbd/db", "typo": "1"})"), ContainsSubstring("there is no key typo"));
}

TEST_CASE("a volume ID that is no name of a folder is refused") {
  for (const char* id : {"", "..", "a/b", ".hidden"}) {
    auto variables = asked(R"({"image": "rbd/db"})");
    variables["DHV_VOLUME_ID"] = id;
    CHECK(of(variables).error().code == errc::invalid_argument);
  }
}
