#include "corbd/kube/objects.hpp"

#include <boost/json/parse.hpp>

#include "support/catch.hpp"

using namespace corbd;

namespace {

boost::json::object object(const char* text) { return boost::json::parse(text).as_object(); }

}  // namespace

TEST_CASE("the labels and attached volumes of a Node are read") {
  const auto node = kube::node_of(object(
      R"({"metadata":{"labels":{"zone":"a"}},"status":{"volumesAttached":[{"name":"kubernetes.io/csi/d^h"}]}})"));
  CHECK(node.labels.at("zone") == "a");
  CHECK(node.volumes_attached == std::vector<std::string>{"kubernetes.io/csi/d^h"});
}

TEST_CASE("the owner and the deletion of a VolumeAttachment are read") {
  const auto found =
      kube::volume_attachment_of(object(R"({"metadata":{"uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z"},
      "spec":{"attacher":"d","nodeName":"n","source":{"persistentVolumeName":"pv"}},"status":{"attached":true,"attachmentMetadata":{"a":"b"}}})"));
  CHECK(found.uid == "u");
  CHECK(found.volume == "pv");
  CHECK(found.attached);
  CHECK(found.deleting);
  CHECK(found.metadata.at("a") == "b");
}

TEST_CASE("the attached volumes and the out-of-service taint of a Node are read") {
  const auto node = kube::node_of(
      object(R"({"spec":{"taints":[{"key":"other"},{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]},
      "status":{"volumesAttached":[{"name":"kubernetes.io/csi/d^h","devicePath":""}]}})"));
  CHECK(node.volumes_attached == std::vector<std::string>{kube::attached_name("h", "d")});
  CHECK(node.out_of_service);
  CHECK_FALSE(kube::node_of(object(R"({"spec":{"taints":[{"key":"other"}]}})")).out_of_service);
  CHECK(node.taints == std::vector<std::string>{"other", "node.kubernetes.io/out-of-service"});
}

TEST_CASE("the drivers that kubelet has registered are read from the CSINode") {
  CHECK(kube::lists_driver(object(R"({"spec":{"drivers":[{"name":"other"},{"name":"d"}]}})"), "d"));
  CHECK_FALSE(kube::lists_driver(object(R"({"spec":{"drivers":[{"name":"other"}]}})"), "d"));
  CHECK_FALSE(kube::lists_driver(object(R"({"spec":{"drivers":null}})"), "d"));
}

TEST_CASE("a patch without a taint removes all taints of that key from the last one on, each only where it was read") {
  const auto node = object(R"({"spec":{"taints":[{"key":"k","effect":"NoExecute"},{"key":"other"},{"key":"k"}]}})");
  CHECK(kube::without_taint(node, "k") == boost::json::parse(R"([
      {"op":"test","path":"/spec/taints/2","value":{"key":"k"}},{"op":"remove","path":"/spec/taints/2"},
      {"op":"test","path":"/spec/taints/0","value":{"key":"k","effect":"NoExecute"}},
      {"op":"remove","path":"/spec/taints/0"}])"));
  CHECK(kube::without_taint(node, "none").empty());
  CHECK(kube::without_taint(object("{}"), "k").empty());
}

TEST_CASE("the addresses of a Node, its readiness and since when are read") {
  const auto node = kube::node_of(object(R"({"metadata":{"name":"n"},"status":{
      "addresses":[{"type":"InternalIP","address":"10.0.0.7"},{"type":"Hostname","address":"n"},{}],
      "conditions":[{"type":"MemoryPressure","status":"True"},
                    {"type":"Ready","status":"Unknown","lastTransitionTime":"2026-11-23T03:00:00Z"}]}})"));
  CHECK(node.addresses == std::vector<std::string>{"10.0.0.7"});
  CHECK(node.ready == false);
  CHECK(node.ready_since == "2026-11-23T03:00:00Z");
  CHECK(kube::node_of(object(R"({"status":{"conditions":[{"type":"Ready","status":"True"}]}})")).ready == true);
  CHECK_FALSE(kube::node_of(object("{}")).ready);
}

TEST_CASE("a VolumeAttachment's name is computed from handle, driver and node") {
  // printf handledrivernode | sha256sum
  CHECK(kube::volume_attachment_name("handle", "driver", "node") ==
        "csi-fdef298eb16db6fa42906ef1ff09a93a7f3028f8290cc9d71628ff91c237bfa7");
}

TEST_CASE("the volumeMode, binding, attributes, stage secret and claim of a PersistentVolume are read") {
  const auto found = kube::persistent_volume_of(
      object(R"({"metadata":{"name":"pv"},"spec":{"volumeMode":"Block","accessModes":["ReadWriteOnce"],
      "csi":{"driver":"d","volumeHandle":"h","fsType":"ext4","volumeAttributes":{"pool":"p","n":1},"nodeStageSecretRef":{"name":"s","namespace":"ns"}},
      "claimRef":{"name":"c","namespace":"default"}},"status":{"phase":"Bound"}})"));
  CHECK(found.mode == "Block");
  CHECK(found.bound);
  CHECK(found.attributes == std::map<std::string, std::string>{{"pool", "p"}});
  REQUIRE(found.node_stage_secret);
  CHECK(found.node_stage_secret->name_space == "ns");
  CHECK(found.claim->name == "c");
}

TEST_CASE("objects with missing fields or fields of other types are read as empty") {
  for (const char* text :
       {"{}", R"({"metadata":null,"spec":null,"status":null})",
        R"({"metadata":[],"spec":{"source":null,"csi":null,"accessModes":null},"status":1})",
        R"({"spec":{"csi":{"nodeStageSecretRef":{}},"source":{}},"status":{"volumesAttached":[null,1]}})"}) {
    const auto anything = object(text);
    CHECK_FALSE(kube::volume_attachment_of(anything).attached);
    CHECK(kube::persistent_volume_of(anything).driver.empty());
    CHECK_FALSE(kube::persistent_volume_of(anything).node_stage_secret);
    CHECK(kube::node_of(anything).labels.empty());
    CHECK(kube::data_of_secret(anything).empty());
  }
}

TEST_CASE("unknown modes are kept as they are, and an empty list of access modes stays empty") {
  const auto found =
      kube::persistent_volume_of(object(R"({"spec":{"accessModes":["ReadWriteNow",null,7],"volumeMode":"Stream"}})"));
  CHECK(found.access_modes == std::vector<std::string>{"ReadWriteNow"});
  CHECK(found.mode == "Stream");
  CHECK(kube::persistent_volume_of(object(R"({"spec":{"accessModes":[]}})")).access_modes.empty());
}

TEST_CASE("a ConfigMap's data are texts, and a request for a service account's token names the audiences it is for") {
  CHECK(kube::data_of_config_map(object(R"({"data":{"a":"b","n":1}})")) ==
        std::map<std::string, std::string>{{"a", "b"}});
  CHECK(kube::tokens_of("team", "sa").path == "/api/v1/namespaces/team/serviceaccounts/sa/token");
  CHECK(kube::token_request({}).at("spec").as_object().empty());
  CHECK(kube::token_request({"vault"}).at("spec").at("audiences").as_array().size() == 1);
  CHECK(kube::token_of(object(R"({"status":{"token":"t"}})")).reveal() == "t");
  CHECK(kube::token_of(object(R"({"status":{}})")).empty());
}

TEST_CASE("a Secret's values may be any bytes, and one that is not base64 is left out") {
  const auto data = kube::data_of_secret(object(R"({"data":{"userKey":"AAH/","empty":"","bad":"a"}})"));
  CHECK(data.at("userKey").reveal() == std::string_view("\0\1\xff", 3));
  CHECK(data.at("empty").empty());
  CHECK_FALSE(data.contains("bad"));
}
