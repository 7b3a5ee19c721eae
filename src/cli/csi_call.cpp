#include <grpcpp/grpcpp.h>

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <iostream>

#include "corbd/cli/options.hpp"
#include "corbd/core/file.hpp"
#include "corbd/rpc/json.hpp"
#include "csi/v1/csi.grpc.pb.h"
#include "csiaddons/reclaimspace.grpc.pb.h"

namespace corbd::cli {
namespace {

namespace spec = ::csi::v1;

spec::VolumeCapability capability_of(const CsiCall& call) {
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

google::protobuf::Map<std::string, std::string> attributes_of(const CsiCall& call) {
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

grpc::Status stage(spec::Node::Stub& node, grpc::ClientContext& context, const CsiCall& call) {
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
  spec::NodeStageVolumeResponse response;
  return node.NodeStageVolume(&context, request, &response);
}

grpc::Status unstage(spec::Node::Stub& node, grpc::ClientContext& context, const CsiCall& call) {
  spec::NodeUnstageVolumeRequest request;
  request.set_volume_id(call.volume_id);
  request.set_staging_target_path(call.staging_path);
  spec::NodeUnstageVolumeResponse response;
  return node.NodeUnstageVolume(&context, request, &response);
}

grpc::Status publish(spec::Node::Stub& node, grpc::ClientContext& context, const CsiCall& call) {
  spec::NodePublishVolumeRequest request;
  request.set_volume_id(call.volume_id);
  request.set_staging_target_path(call.staging_path);
  request.set_target_path(call.target);
  request.set_readonly(call.readonly);
  *request.mutable_volume_capability() = capability_of(call);
  *request.mutable_volume_context() = attributes_of(call);
  spec::NodePublishVolumeResponse response;
  return node.NodePublishVolume(&context, request, &response);
}

grpc::Status unpublish(spec::Node::Stub& node, grpc::ClientContext& context, const CsiCall& call) {
  spec::NodeUnpublishVolumeRequest request;
  request.set_volume_id(call.volume_id);
  request.set_target_path(call.target);
  spec::NodeUnpublishVolumeResponse response;
  return node.NodeUnpublishVolume(&context, request, &response);
}

/// In protobuf's form: camelCase, 64-bit numbers as text, no zero values.
boost::json::value to_json(const google::protobuf::Message& response) {
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(response, &text).ok()) return {};
  return boost::json::parse(text);
}

spec::NodeExpandVolumeRequest expand(const CsiCall& call) {
  spec::NodeExpandVolumeRequest request;
  request.set_volume_id(call.volume_id);
  request.set_volume_path(call.target);
  request.set_staging_target_path(call.staging_path);
  if (call.bytes != 0) request.mutable_capacity_range()->set_required_bytes(call.bytes);
  return request;
}

spec::NodeGetVolumeStatsRequest stats(const CsiCall& call) {
  spec::NodeGetVolumeStatsRequest request;
  request.set_volume_id(call.volume_id);
  request.set_volume_path(call.target);
  return request;
}

spec::NodeGetVolumeHealthRequest health(const CsiCall& call) {
  spec::NodeGetVolumeHealthRequest request;
  request.set_volume_id(call.volume_id);
  return request;
}

using NodeStub = spec::Node::Stub;

template <class Request, class Response>
grpc::Status ask(NodeStub& node, grpc::Status (NodeStub::*method)(grpc::ClientContext*, const Request&, Response*),
                 grpc::ClientContext& context, const Request& request, boost::json::value& answer) {
  Response response;
  const auto status = (node.*method)(&context, request, &response);
  answer = to_json(response);
  return status;
}

grpc::Status reclaim(grpc::ClientContext& context, const std::shared_ptr<grpc::Channel>& channel, const CsiCall& call) {
  reclaimspace::NodeReclaimSpaceRequest request;
  request.set_volume_id(call.volume_id);
  request.set_staging_target_path(call.staging_path);
  reclaimspace::NodeReclaimSpaceResponse response;
  return reclaimspace::ReclaimSpaceNode::NewStub(channel)->NodeReclaimSpace(&context, request, &response);
}

grpc::Status identity(spec::Identity::Stub& stub, grpc::ClientContext& context, const CsiCall& call,
                      std::string& said) {
  if (call.method == "probe") {
    spec::ProbeResponse response;
    return stub.Probe(&context, spec::ProbeRequest(), &response);
  }
  spec::GetPluginInfoResponse response;
  const auto status = stub.GetPluginInfo(&context, spec::GetPluginInfoRequest(), &response);
  said = response.name() + " " + response.vendor_version();
  return status;
}

std::string code_name(grpc::StatusCode code) {
  constexpr const char* names[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return code >= 0 && code <= 16 ? names[code] : "UNKNOWN";
}

}  // namespace

int call_csi(const CsiCall& call) {
  grpc::ChannelArguments arguments;
  for (const char* pause : {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS})
    arguments.SetInt(pause, 100);
  auto channel = grpc::CreateCustomChannel(call.endpoint, grpc::InsecureChannelCredentials(), arguments);
  spec::Node::Stub node(channel);
  spec::Identity::Stub plugin(channel);
  grpc::ClientContext context;
  context.set_wait_for_ready(call.wait);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(call.timeout_s));
  grpc::Status status;
  std::string said;
  boost::json::value answer;
  if (call.method == "stage")
    status = stage(node, context, call);
  else if (call.method == "unstage")
    status = unstage(node, context, call);
  else if (call.method == "publish")
    status = publish(node, context, call);
  else if (call.method == "unpublish")
    status = unpublish(node, context, call);
  else if (call.method == "expand")
    status = ask(node, &NodeStub::NodeExpandVolume, context, expand(call), answer);
  else if (call.method == "stats")
    status = ask(node, &NodeStub::NodeGetVolumeStats, context, stats(call), answer);
  else if (call.method == "health")
    status = ask(node, &NodeStub::NodeGetVolumeHealth, context, health(call), answer);
  else if (call.method == "reclaim")
    status = reclaim(context, channel, call);
  else
    status = identity(plugin, context, call, said);
  boost::json::object line{{"code", code_name(status.error_code())},
                           {"message", status.ok() ? said : status.error_message()}};
  if (status.ok() && !answer.is_null()) line["answer"] = answer;
  std::cout << boost::json::serialize(rpc::document(line)) << std::endl;
  return status.ok() ? 0 : 1;
}

}  // namespace corbd::cli
