#include "addons.hpp"

#include "csiaddons/encryptionkeyrotation.grpc.pb.h"
#include "csiaddons/identity.grpc.pb.h"
#include "csiaddons/reclaimspace.grpc.pb.h"
#include "requests.hpp"

namespace corbd::csi {
namespace {

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

class AddonsIdentity final : public identity::Identity::CallbackService {
 public:
  AddonsIdentity(const Config& config, Role role) : config_(config), role_(role) {}

  Reactor* GetIdentity(Context* context, const identity::GetIdentityRequest*,
                       identity::GetIdentityResponse* response) override {
    response->set_name(config_.drivername);
    response->set_vendor_version(config_.version);
    return rpc::Server::answer(context, grpc::Status::OK);
  }
  Reactor* GetCapabilities(Context* context, const identity::GetCapabilitiesRequest*,
                           identity::GetCapabilitiesResponse* response) override {
    using identity::Capability;
    const auto offer = [response] { return response->add_capabilities(); };
    if (role_ == Role::fencing_only) {
      offer()->mutable_service()->set_type(Capability::Service::CONTROLLER_SERVICE);
      offer()->mutable_network_fence()->set_type(Capability::NetworkFence::NETWORK_FENCE);
    } else {
      offer()->mutable_service()->set_type(Capability::Service::NODE_SERVICE);
      offer()->mutable_reclaim_space()->set_type(Capability::ReclaimSpace::ONLINE);
      offer()->mutable_encryption_key_rotation()->set_type(Capability::EncryptionKeyRotation::ENCRYPTIONKEYROTATION);
    }
    if (config_.fencer != nullptr)
      offer()->mutable_network_fence()->set_type(Capability::NetworkFence::GET_CLIENTS_TO_FENCE);
    return rpc::Server::answer(context, grpc::Status::OK);
  }
  Reactor* Probe(Context* context, const identity::ProbeRequest*, identity::ProbeResponse* response) override {
    response->mutable_ready()->set_value(true);
    return rpc::Server::answer(context, grpc::Status::OK);
  }

 private:
  const Config& config_;
  const Role role_;
};

bool of_many_nodes(const ::csi::v1::VolumeCapability& capability) {
  using Mode = ::csi::v1::VolumeCapability::AccessMode;
  const auto mode = capability.access_mode().mode();
  return mode == Mode::MULTI_NODE_READER_ONLY || mode == Mode::MULTI_NODE_SINGLE_WRITER ||
         mode == Mode::MULTI_NODE_MULTI_WRITER;
}

class ReclaimSpace final : public reclaimspace::ReclaimSpaceNode::CallbackService {
 public:
  ReclaimSpace(rpc::Server& server, volume::Volumes& volumes) : server_(server), volumes_(volumes) {}

  /// Usage is optional. Finding it out would cost the cluster a walk over the whole image.
  Reactor* NodeReclaimSpace(Context* context, const reclaimspace::NodeReclaimSpaceRequest* request,
                            reclaimspace::NodeReclaimSpaceResponse*) override {
    auto work = [this, request](Until until) { return reclaim(volumes_, *request, until); };
    return server_.unary(context, "NodeReclaimSpace", request->volume_id(), work);
  }

 private:
  static task<result<>> reclaim(volume::Volumes& volumes, const reclaimspace::NodeReclaimSpaceRequest& request,
                                Until until) {
    if (auto id = check_id(request.volume_id()); !id) co_return id;
    // The sidecar sends only the staging path.
    const bool staged = !request.staging_target_path().empty();
    const std::string& path = staged ? request.staging_target_path() : request.volume_path();
    if (auto known = check_known_path(path, "staging target path or volume path"); !known) co_return known;
    if (of_many_nodes(request.volume_capability()))
      co_return Error{errc::unimplemented, "volume " + request.volume_id() +
                                               " is used on many nodes, so no single node can reclaim its space"};
    co_return co_await volumes.want(request.volume_id(), plan::Wish(plan::Trimmed{path}), until);
  }

  rpc::Server& server_;
  volume::Volumes& volumes_;
};

class KeyRotation final : public encryptionkeyrotation::EncryptionKeyRotationController::CallbackService {
 public:
  KeyRotation(rpc::Server& server, volume::Volumes& volumes) : server_(server), volumes_(volumes) {}

  Reactor* EncryptionKeyRotate(Context* context, const encryptionkeyrotation::EncryptionKeyRotateRequest* request,
                               encryptionkeyrotation::EncryptionKeyRotateResponse*) override {
    auto work = [this, request](Until until) { return rotate(volumes_, *request, until); };
    return server_.unary(context, "EncryptionKeyRotate", request->volume_id(), work);
  }

 private:
  static task<result<>> rotate(volume::Volumes& volumes,
                               const encryptionkeyrotation::EncryptionKeyRotateRequest& request, Until until) {
    if (auto id = check_id(request.volume_id()); !id) co_return id;
    plan::Rekeyed wish;
    if (const auto place = request.secrets().find(kPassphrase); place != request.secrets().end())
      wish.passphrase = Secret(place->second);
    wish.secrets = other_secrets(request.secrets());
    wipe_secrets(request);
    co_return co_await volumes.want(request.volume_id(), plan::Wish(std::move(wish)), until);
  }

  rpc::Server& server_;
  volume::Volumes& volumes_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_identity(const Config& config, Role role) {
  return std::make_unique<AddonsIdentity>(config, role);
}

std::vector<std::unique_ptr<grpc::Service>> make_addons(rpc::Server& server, volume::Volumes& volumes,
                                                        const Config& config) {
  std::vector<std::unique_ptr<grpc::Service>> all;
  all.push_back(make_identity(config, Role::node));
  all.push_back(std::make_unique<ReclaimSpace>(server, volumes));
  all.push_back(std::make_unique<KeyRotation>(server, volumes));
  if (config.fencer != nullptr) all.push_back(make_fence_controller(server, *config.fencer));
  return all;
}

}  // namespace corbd::csi
