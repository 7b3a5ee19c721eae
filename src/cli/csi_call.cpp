#include <grpcpp/grpcpp.h>

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <iostream>

#include "corbd/core/file.hpp"
#include "corbd/rpc/json.hpp"
#include "csi/v1/csi.grpc.pb.h"
#include "csiaddons/reclaimspace.grpc.pb.h"
#include "subcommand.hpp"

namespace corbd::cli {
namespace {

namespace spec = ::csi::v1;

/// Options of the call on the command line.
struct CsiArguments {
  std::string method, endpoint, volume_id, staging_path, target, cluster_id, pool, user, key_file, passphrase_file,
      fstype, mkfs_options;
  std::string mode = "SINGLE_NODE_MULTI_WRITER";
  std::vector<std::string> mount_flags;
  std::vector<std::string> attributes;  ///< "name=value"; overrides an attribute of a static volume
  bool block = false, readonly = false;
  std::int64_t bytes = 0;
  bool wait = false;  ///< waits for an agent that does not answer yet
  int timeout_s = 120;
};

/// The channel of a call, and everything that comes back beside its status.
struct Exchange {
  std::shared_ptr<grpc::Channel> channel;
  grpc::ClientContext context = {};
  std::string said = {};
  boost::json::value answer = {};

  template <class Stub, class Request, class Response>
  grpc::Status send(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response& response) {
    Stub stub(channel);
    return (stub.*method)(&context, request, &response);
  }
  /// Makes a call with an empty response.
  template <class Stub, class Request, class Response>
  grpc::Status send(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request) {
    Response response;
    return send(method, request, response);
  }
  /// Turns the answer into JSON in protobuf's form: camelCase, 64-bit numbers as text, no zero values.
  template <class Stub, class Request, class Response>
  grpc::Status ask(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                   const Request& request) {
    Response response;
    auto status = send(method, request, response);
    std::string text;
    if (google::protobuf::util::MessageToJsonString(response, &text).ok()) answer = boost::json::parse(text);
    return status;
  }
};

spec::VolumeCapability capability_of(const CsiArguments& call) {
  spec::VolumeCapability capability;
  auto mode = spec::VolumeCapability::AccessMode::UNKNOWN;
  spec::VolumeCapability::AccessMode::Mode_Parse(call.mode, &mode);
  capability.mutable_access_mode()->set_mode(mode);
  if (call.block) {
    capability.mutable_block();
    return capability;
  }
  capability.mutable_mount()->set_fs_type(call.fstype);
  for (const auto& flag : call.mount_flags) capability.mutable_mount()->add_mount_flags(flag);
  return capability;
}

google::protobuf::Map<std::string, std::string> attributes_of(const CsiArguments& call) {
  google::protobuf::Map<std::string, std::string> attributes;
  attributes["staticVolume"] = "true";
  attributes["clusterID"] = call.cluster_id;
  attributes["pool"] = call.pool;
  attributes["mounter"] = "rbd-nbd";
  if (!call.mkfs_options.empty()) attributes["mkfsOptions"] = call.mkfs_options;
  for (const auto& attribute : call.attributes) {
    const auto equals = std::min(attribute.find('='), attribute.size());
    attributes[attribute.substr(0, equals)] = attribute.substr(std::min(equals + 1, attribute.size()));
  }
  return attributes;
}

grpc::Status stage(Exchange& with, const CsiArguments& call) {
  spec::NodeStageVolumeRequest request;
  request.set_volume_id(call.volume_id);
  request.set_staging_target_path(call.staging_path);
  *request.mutable_volume_capability() = capability_of(call);
  *request.mutable_volume_context() = attributes_of(call);
  auto key = read_file(call.key_file, 4096);
  if (!key) return {grpc::StatusCode::INVALID_ARGUMENT, key.error().text};
  while (!key->empty() && (key->back() == '\n' || key->back() == ' ')) key->pop_back();
  (*request.mutable_secrets())["userID"] = call.user;
  (*request.mutable_secrets())["userKey"] = *key;
  if (!call.passphrase_file.empty()) {
    const auto passphrase = read_file(call.passphrase_file, 4096);
    if (!passphrase) return {grpc::StatusCode::INVALID_ARGUMENT, passphrase.error().text};
    (*request.mutable_secrets())["encryptionPassphrase"] = *passphrase;
  }
  return with.send(&spec::Node::Stub::NodeStageVolume, request);
}

grpc::Status unstage(Exchange& with, const CsiArguments& call) {
  spec::NodeUnstageVolumeRequest request;
  request.set_volume_id(call.volume_id);
  request.set_staging_target_path(call.staging_path);
  return with.send(&spec::Node::Stub::NodeUnstageVolume, request);
}

grpc::Status publish(Exchange& with, const CsiArguments& call) {
  spec::NodePublishVolumeRequest request;
  request.set_volume_id(call.volume_id);
  request.set_staging_target_path(call.staging_path);
  request.set_target_path(call.target);
  request.set_readonly(call.readonly);
  *request.mutable_volume_capability() = capability_of(call);
  *request.mutable_volume_context() = attributes_of(call);
  return with.send(&spec::Node::Stub::NodePublishVolume, request);
}

grpc::Status unpublish(Exchange& with, const CsiArguments& call) {
  spec::NodeUnpublishVolumeRequest request;
  request.set_volume_id(call.volume_id);
  request.set_target_path(call.target);
  return with.send(&spec::Node::Stub::NodeUnpublishVolume, request);
}

grpc::Status expand(Exchange& with, const CsiArguments& call) {
  spec::NodeExpandVolumeRequest request;
  request.set_volume_id(call.volume_id);
  request.set_volume_path(call.target);
  request.set_staging_target_path(call.staging_path);
  if (call.bytes != 0) request.mutable_capacity_range()->set_required_bytes(call.bytes);
  return with.ask(&spec::Node::Stub::NodeExpandVolume, request);
}

grpc::Status stats(Exchange& with, const CsiArguments& call) {
  spec::NodeGetVolumeStatsRequest request;
  request.set_volume_id(call.volume_id);
  request.set_volume_path(call.target);
  return with.ask(&spec::Node::Stub::NodeGetVolumeStats, request);
}

grpc::Status health(Exchange& with, const CsiArguments& call) {
  spec::NodeGetVolumeHealthRequest request;
  request.set_volume_id(call.volume_id);
  return with.ask(&spec::Node::Stub::NodeGetVolumeHealth, request);
}

grpc::Status storage(Exchange& with, const CsiArguments&) {
  return with.ask(&spec::Node::Stub::NodeGetStorageHealth, spec::NodeGetStorageHealthRequest());
}

grpc::Status reclaim(Exchange& with, const CsiArguments& call) {
  reclaimspace::NodeReclaimSpaceRequest request;
  request.set_volume_id(call.volume_id);
  request.set_staging_target_path(call.staging_path);
  return with.send(&reclaimspace::ReclaimSpaceNode::Stub::NodeReclaimSpace, request);
}

grpc::Status probe(Exchange& with, const CsiArguments&) {
  return with.send(&spec::Identity::Stub::Probe, spec::ProbeRequest());
}

grpc::Status info(Exchange& with, const CsiArguments&) {
  spec::GetPluginInfoResponse response;
  auto status = with.send(&spec::Identity::Stub::GetPluginInfo, spec::GetPluginInfoRequest(), response);
  with.said = response.name() + " " + response.vendor_version();
  return status;
}

struct Method {
  const char* name;
  grpc::Status (*call)(Exchange&, const CsiArguments&);
};
constexpr Method kMethods[] = {{"stage", stage},         {"unstage", unstage}, {"publish", publish},
                               {"unpublish", unpublish}, {"expand", expand},   {"stats", stats},
                               {"health", health},       {"storage", storage}, {"reclaim", reclaim},
                               {"probe", probe},         {"info", info}};

std::string code_name(grpc::StatusCode code) {
  constexpr const char* names[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return code >= 0 && code <= 16 ? names[code] : "UNKNOWN";
}

/// Makes one CSI call, for scripts and for people who inspect an agent. Prints {"code","message"} as one JSON line.
class CsiCall final : public Subcommand {
 public:
  static constexpr const char* kName = "csi";
  static constexpr const char* kDescription = "Send one CSI call to an agent";

  explicit CsiCall(CLI::App& command) {
    std::vector<std::string> methods;
    for (const Method& method : kMethods) methods.emplace_back(method.name);
    command
        .add_option("method", call_.method,
                    "stage, unstage, publish, unpublish, expand, stats, health, storage, probe or info; on the "
                    "CSI-Addons socket, reclaim")
        ->required()
        ->check(CLI::IsMember(std::move(methods)));
    command.add_option("--endpoint", call_.endpoint, "CSI socket, unix:///path")->required();
    command.add_option("--volume-id", call_.volume_id, "Volume ID; for a static volume, the image's name");
    command.add_option("--staging-path", call_.staging_path, "Staging path");
    command.add_option("--target", call_.target, "Target; for expand and stats, the volume path");
    command.add_option("--cluster-id", call_.cluster_id, "Cluster ID in config.json");
    command.add_option("--pool", call_.pool, "Pool of the image");
    command.add_option("--user", call_.user, "Ceph user, without the prefix client.");
    command.add_option("--key-file", call_.key_file, "File that holds the user's key");
    command.add_option("--passphrase-file", call_.passphrase_file,
                       "File that holds the passphrase of an encrypted volume; every byte counts, a line end too");
    command.add_option("--fstype", call_.fstype, "Filesystem type [the one that is there; ext4 for an empty image]");
    command.add_option("--mkfs-options", call_.mkfs_options, "Options for mkfs, instead of the default ones");
    command.add_option(
        "--attribute", call_.attributes,
        "Volume attribute, name=value; may be repeated. For a volume that a provisioner made: staticVolume=false");
    command.add_option("--mount-flag", call_.mount_flags, "Mount option; may be repeated");
    command.add_option("--mode", call_.mode, "Access mode, by its CSI name")->capture_default_str();
    command.add_option("--bytes", call_.bytes, "For expand: the required size in bytes [the image's size]");
    command.add_flag("--block", call_.block, "Use a raw block device instead of a filesystem");
    command.add_flag("--readonly", call_.readonly, "Publish read-only");
    command.add_flag("--wait", call_.wait, "Wait for an agent that does not answer yet");
    command.add_option("--timeout", call_.timeout_s, "Seconds to wait for the answer")->capture_default_str();
    command.footer(exit_codes("0 done, 1 refused or failed, or no agent answers"));
  }
  int run() override {
    grpc::ChannelArguments arguments;
    for (const char* pause : {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS})
      arguments.SetInt(pause, 100);
    Exchange with{grpc::CreateCustomChannel(call_.endpoint, grpc::InsecureChannelCredentials(), arguments)};
    with.context.set_wait_for_ready(call_.wait);
    with.context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(call_.timeout_s));
    const auto* method = std::ranges::find(kMethods, call_.method, &Method::name);
    const auto status = method->call(with, call_);
    boost::json::object line{{"code", code_name(status.error_code())},
                             {"message", status.ok() ? with.said : status.error_message()}};
    if (status.ok() && !with.answer.is_null()) line["answer"] = with.answer;
    std::cout << boost::json::serialize(rpc::document(line)) << std::endl;
    return status.ok() ? 0 : 1;
  }

 private:
  CsiArguments call_;
};

}  // namespace

void add_csi(CLI::App& app, Chosen& chosen) { add<CsiCall>(app, chosen); }

}  // namespace corbd::cli
