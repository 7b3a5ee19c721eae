// What Nomad's environment asks of the plugin for dynamic host volumes.
#include "host_volume.hpp"

#include <map>

#include "support/catch.hpp"

using namespace corbd;
using mounting::HostVolume;
using mounting::HostVolumeRules;

namespace {

using Variables = std::map<std::string, std::string>;

Variables asked(const std::string& parameters) {
  return {{"DHV_OPERATION", "create"}, {"DHV_VOLUMES_DIR", "/opt/nomad/host_volumes"},
          {"DHV_VOLUME_ID", "7-9"},    {"DHV_CAPACITY_MIN_BYTES", "1048576"},
          {"DHV_NAMESPACE", "shop"},   {"DHV_PARAMETERS", parameters}};
}

HostVolumeRules rules() {
  return {{"nomad", "n2"}, {"rbd", "shop"}, {"/etc/ceph/n.keyring"}, {"mapOptions", "tryOtherMounters"}, {}, {},
          {"logdev"}};
}

result<HostVolume> of(const Variables& variables, const std::string& operation = "create",
                      const result<HostVolumeRules>& allowed = rules()) {
  return mounting::host_volume_of(operation, allowed, [&](const char* name) {
    const auto place = variables.find(name);
    return place == variables.end() ? std::string() : place->second;
  });
}

/// Of a volume that is not mounted yet.
std::string error_of(const result<HostVolume>& volume) {
  if (!volume) return volume.error().text;
  return volume->refused_anew ? volume->refused_anew->text : "";
}
std::string error_of(const std::string& parameters) { return error_of(of(asked(parameters))); }

}  // namespace

TEST_CASE("a host volume is mounted below Nomad's folder, by its ID, with its parameters") {
  const auto volume = of(asked(R"({"image": "rbd/db", "user": "nomad", "options": "noatime", "read-only": "true",
                                   "attribute.1": "mapOptions=nbd:rbd_read_from_replica_policy=balance",
                                   "attribute.2": "tryOtherMounters=true"})"));
  REQUIRE(volume);
  CHECK(volume->spec.dir == "/opt/nomad/host_volumes/7-9");
  CHECK(volume->spec.image == "rbd/db");
  CHECK(volume->spec.user == "nomad");
  CHECK(volume->spec.options == "nosuid,nodev,noatime");
  CHECK(volume->spec.read_only);
  CHECK(volume->spec.attributes.size() == 2);
  CHECK(volume->min_bytes == 1048576);
}

TEST_CASE("a host volume is mounted in its own folder and goes from there, whatever path Nomad names") {
  auto variables = asked(R"({"image": "rbd/db", "user": "nomad"})");
  for (const char* path : {"/srv/db", "/opt/nomad/host_volumes/8-1", "/opt/nomad/host_volumes/7-9/../8-1",
                           "/opt/nomad/host_volumes", "/opt/elsewhere/7-9"}) {
    variables["DHV_CREATED_PATH"] = path;
    for (const char* operation : {"create", "delete"})
      CHECK(of(variables, operation)->spec.dir == "/opt/nomad/host_volumes/7-9");
    CHECK(of(variables, "delete")->elsewhere == path);
  }
}

TEST_CASE("a host volume's own folder is that in every spelling") {
  auto variables = asked("null");
  for (const char* folder : {"/opt/nomad/host_volumes", "/opt/nomad/host_volumes/"}) {
    variables["DHV_VOLUMES_DIR"] = folder;
    for (const char* path : {"/opt/nomad/host_volumes/7-9", "/opt/nomad//host_volumes/./7-9",
                             "/opt/nomad/host_volumes/7-9/", "/opt/nomad/host_volumes/7-9//."}) {
      CAPTURE(folder, path);
      variables["DHV_CREATED_PATH"] = path;
      CHECK(of(variables, "delete")->elsewhere.empty());
    }
  }
}

TEST_CASE("a host volume runs no file as another user and shows no device, unless the client's rules allow it") {
  HostVolumeRules more = rules();
  more.options = {"suid", "dev"};
  const auto options = [&](const std::string& asked_for, const HostVolumeRules& allowed) {
    const auto volume =
        of(asked(R"({"image": "rbd/db", "user": "nomad", "options": ")" + asked_for + R"("})"), "create", allowed);
    return error_of(volume).empty() ? volume->spec.options : error_of(volume);
  };
  CHECK(options("", rules()) == "nosuid,nodev");
  CHECK(options("suid,dev", more) == "nosuid,nodev,suid,dev");
  for (const char* gains : {"suid", "noatime,dev", R"(s\"ui\"d)", R"(\"suid\")", R"(comment=\",suid\",suid)"})
    CHECK_THAT(options(gains, rules()), ContainsSubstring("is not allowed on this client"));
  CHECK(of(asked(R"({"image": "rbd/db", "user": "nomad", "block": "true"})"))->spec.options.empty());
}

TEST_CASE("no mount option of a host volume names a file or device of the client, whatever its rules list") {
  CHECK_THAT(error_of(R"({"image": "rbd/db", "user": "nomad", "options": "noatime,logdev=/dev/sda"})"),
             ContainsSubstring("option logdev=/dev/sda names another file or device"));
  CHECK_THAT(error_of(R"({"image": "rbd/db", "user": "nomad", "options": "\"rtdev\"=../dev/sda"})"),
             ContainsSubstring("option rtdev=../dev/sda names"));
  CHECK(error_of(R"({"image": "rbd/db", "user": "nomad", "options": "subvol=/db"})").empty());
}

TEST_CASE("options that the client's rules do not allow hinder no volume that is mounted, and never reach a mount") {
  for (const char* options : {"suid", "noatime,dev", "noatime,logdev=/dev/sda1", "errors=panic"}) {
    const std::string parameters = R"({"image": "rbd/db", "user": "nomad", "options": ")" + std::string(options);
    const auto volume = of(asked(parameters + R"("})"));
    REQUIRE(volume);
    REQUIRE(volume->refused_anew);
    CHECK_FALSE(volume->refused_anew->text.empty());
    CHECK(volume->spec.options == "nosuid,nodev");
    const auto block = of(asked(parameters + R"(", "block": "true"})"));
    REQUIRE(block);
    CHECK(block->refused_anew);
    CHECK(block->spec.options.empty());
  }
}

TEST_CASE("a host volume whose creation failed goes from where it would have been") {
  const auto volume = of(asked("null"), "delete");
  REQUIRE(volume);
  CHECK(volume->spec.dir == "/opt/nomad/host_volumes/7-9");
}

TEST_CASE("parameters that make no mount are refused by name") {
  for (const char* none : {"null", "", "{}", "[1]", R"({"user": "x"})"})
    CHECK_THAT(error_of(none), ContainsSubstring("parameters { image ="));
  CHECK_THAT(error_of(R"({"image": "rbd/db", "user": "a\ndir = /"})"), ContainsSubstring("user is not a text of one"));
  CHECK_THAT(error_of(R"({"image": "rbd/db", "block": 1})"), ContainsSubstring("block is not a text"));
  CHECK_THAT(error_of(R"({"image": "rbd/db", "typo": "1"})"), ContainsSubstring("there is no key typo"));
}

TEST_CASE("no spelling of a parameter sets the folder") {
  CHECK_THAT(error_of(R"({"image": "rbd/db", "dir": "/"})"), ContainsSubstring("dir is Nomad's to choose"));
  for (const char* key : {"dir.1", "dir ", " dir", "dir\\u0000", "DIR", "attribute = a=b\\ndir", "attribute.1.dir",
                          "dir=", "attribute.", "attribute. 1", "\\tdir", "image.1", "keyring.2"}) {
    const auto volume =
        of(asked(R"({"image": "rbd/db", "user": "nomad", ")" + std::string(key) + R"(": "/root/.ssh"})"));
    INFO(key);
    REQUIRE_FALSE(volume);
    CHECK(volume.error().code == errc::invalid_argument);
  }
}

TEST_CASE("a host volume names its Ceph user, because none is the default") {
  CHECK_THAT(error_of(R"({"image": "rbd/db"})"), ContainsSubstring("names no Ceph user"));
}

TEST_CASE("what the client's rules do not list is refused by name") {
  const auto refusal = [](const std::string& parameters) {
    const auto volume = of(asked(R"({"user": "nomad", )" + parameters + "}"));
    if (volume) return std::string("allowed");
    return volume.error().code == errc::permission_denied ? volume.error().text : "another error";
  };
  CHECK(refusal(R"("image": "shop/db", "keyring": "/etc/ceph/n.keyring")") == "allowed");
  CHECK_THAT(refusal(R"("image": "rbd/db", "user": "admin")"), ContainsSubstring("user 'admin'"));
  CHECK_THAT(refusal(R"("image": "secret/db")"), ContainsSubstring("pool 'secret'"));
  CHECK_THAT(refusal(R"("image": "0001-0009-rook-ceph-0000000000000002-11111111-2222-3333-4444-555555555555")"),
             ContainsSubstring("only * allows an ID"));
  for (const char* key : {"conf", "keyring", "passphrase-file"})
    CHECK_THAT(refusal(R"("image": "rbd/db", ")" + std::string(key) + R"(": "/srv/own")"),
               ContainsSubstring(std::string(key) + " '/srv/own'"));
  CHECK_THAT(refusal(R"("image": "rbd/db", "attribute.7": "pool=secret")"), ContainsSubstring("attribute 'pool'"));
  CHECK_THAT(refusal(R"("image": "rbd/db", "cluster": "other")"), ContainsSubstring("cluster 'other'"));
  CHECK_THAT(refusal(R"("image": "rbd/db", "encrypted": "vault")"), ContainsSubstring("encrypted 'vault'"));
}

TEST_CASE("without rules of the client nothing is created, but what is there can be deleted") {
  const result<HostVolumeRules> none = Error{errc::permission_denied, "no rules"};
  CHECK(of(asked(R"({"image": "rbd/db", "user": "nomad"})"), "create", none).error().text == "no rules");
  CHECK(of(asked("null"), "delete", none));
}

TEST_CASE("a client's rules are lists, and an unknown line is refused by its number") {
  const auto read = mounting::parse_host_volume_rules("# of Nomad\nusers = nomad, n2\npools=rbd\n");
  REQUIRE(read);
  CHECK(read->users == std::vector<std::string>{"nomad", "n2"});
  CHECK(read->pools == std::vector<std::string>{"rbd"});
  CHECK(read->files.empty());
  CHECK_THAT(mounting::parse_host_volume_rules("users = a\npool = rbd\n").error().text, ContainsSubstring("line 2"));
  CHECK_THAT(mounting::parse_host_volume_rules("users = a\n\nrbd\n").error().text, ContainsSubstring("line 3"));
}

TEST_CASE("a volume ID that is no name of a folder is refused") {
  for (const char* id : {"", "..", "a/b", ".hidden"}) {
    auto variables = asked(R"({"image": "rbd/db"})");
    variables["DHV_VOLUME_ID"] = id;
    CHECK(of(variables).error().code == errc::invalid_argument);
  }
}
