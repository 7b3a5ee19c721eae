#include "support/controller.hpp"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <rbd/librbd.h>

#include <algorithm>
#include <stdexcept>

#include "corbd/cephcsi/handle.hpp"
#include "csi/v1/controller.grpc.pb.h"
#include "csi/v1/csi.grpc.pb.h"

namespace corbd::test {
namespace {

namespace v1 = ::csi::v1;
constexpr std::int64_t kDefaultBytes = 1 << 30, kMiB = 1 << 20;

grpc::Status invalid(const char* what) { return {grpc::StatusCode::INVALID_ARGUMENT, what}; }

template <class Work>
grpc::Status guarded(Work work) {
  try {
    return work();
  } catch (const std::exception& failed) {
    return {grpc::StatusCode::INTERNAL, failed.what()};
  }
}

std::int64_t wanted_bytes(const v1::CapacityRange& range) {
  const std::int64_t bytes = range.required_bytes() != 0 ? range.required_bytes() : kDefaultBytes;
  return (bytes + kMiB - 1) / kMiB * kMiB;
}

}  // namespace

class Controller::Calls final : public v1::Controller::Service {
 public:
  Calls(rados_t cluster, std::string cluster_id, std::string pool)
      : cluster_(cluster), provisioner_(cluster, std::move(cluster_id)), pool_(std::move(pool)) {}

  grpc::Status CreateVolume(grpc::ServerContext*, const v1::CreateVolumeRequest* request,
                            v1::CreateVolumeResponse* response) override {
    if (request->name().empty()) return invalid("name is missing");
    if (request->volume_capabilities().empty()) return invalid("volume capabilities are missing");
    return guarded([&] { return create(*request, *response->mutable_volume()); });
  }
  grpc::Status DeleteVolume(grpc::ServerContext*, const v1::DeleteVolumeRequest* request,
                            v1::DeleteVolumeResponse*) override {
    if (request->volume_id().empty()) return invalid("volume id is missing");
    return guarded([&] {
      provisioner_.remove(request->volume_id());
      return grpc::Status::OK;
    });
  }
  grpc::Status ControllerExpandVolume(grpc::ServerContext*, const v1::ControllerExpandVolumeRequest* request,
                                      v1::ControllerExpandVolumeResponse* response) override {
    if (request->volume_id().empty()) return invalid("volume id is missing");
    if (!request->has_capacity_range()) return invalid("capacity range is missing");
    return guarded([&] { return expand(*request, *response); });
  }
  /// Every capability is confirmed, because a node serves a volume of ours in every way.
  grpc::Status ValidateVolumeCapabilities(grpc::ServerContext*, const v1::ValidateVolumeCapabilitiesRequest* request,
                                          v1::ValidateVolumeCapabilitiesResponse* response) override {
    if (request->volume_id().empty()) return invalid("volume id is missing");
    if (request->volume_capabilities().empty()) return invalid("volume capabilities are missing");
    auto found = open(request->volume_id(), true, [](rbd_image_t) { return 0; });
    if (!found.ok()) return found;
    using Mode = v1::VolumeCapability::AccessMode;
    for (const auto& capability : request->volume_capabilities())
      if (capability.has_mount() && capability.access_mode().mode() == Mode::MULTI_NODE_MULTI_WRITER) {
        response->set_message("many nodes write raw block only");
        return grpc::Status::OK;
      }
    *response->mutable_confirmed()->mutable_volume_capabilities() = request->volume_capabilities();
    *response->mutable_confirmed()->mutable_volume_context() = request->volume_context();
    *response->mutable_confirmed()->mutable_parameters() = request->parameters();
    return grpc::Status::OK;
  }
  grpc::Status ControllerGetCapabilities(grpc::ServerContext*, const v1::ControllerGetCapabilitiesRequest*,
                                         v1::ControllerGetCapabilitiesResponse* response) override {
    using Rpc = v1::ControllerServiceCapability::RPC;
    for (const auto type : {Rpc::CREATE_DELETE_VOLUME, Rpc::EXPAND_VOLUME})
      response->add_capabilities()->mutable_rpc()->set_type(type);
    return grpc::Status::OK;
  }

 private:
  grpc::Status create(const v1::CreateVolumeRequest& request, v1::Volume& made) {
    NewVolume wanted;
    wanted.name = request.name();
    const auto pool = request.parameters().find("pool");
    wanted.pool = pool == request.parameters().end() ? pool_ : pool->second;
    wanted.size = static_cast<std::uint64_t>(wanted_bytes(request.capacity_range()));
    const auto known = provisioner_.find(wanted);
    if (known && known->size != wanted.size)
      return {grpc::StatusCode::ALREADY_EXISTS,
              "volume " + wanted.name + " has " + std::to_string(known->size) + " bytes"};
    const NewHandle handle = known ? known->handle : provisioner_.create(wanted);
    made.set_volume_id(handle.volume_id);
    made.set_capacity_bytes(static_cast<std::int64_t>(wanted.size));
    for (const auto& [name, value] : request.parameters()) (*made.mutable_volume_context())[name] = value;
    for (const auto& [name, value] : handle.context) (*made.mutable_volume_context())[name] = value;
    return grpc::Status::OK;
  }

  /// Opens the volume's image for `work`, which returns 0 or -errno.
  template <class Work>
  grpc::Status open(const std::string& volume_id, bool read_only, Work work) {
    const auto handle = cephcsi::decode_handle(volume_id);
    if (!handle) return {grpc::StatusCode::NOT_FOUND, "no volume " + volume_id};
    rados_ioctx_t io = nullptr;
    if (rados_ioctx_create2(cluster_, handle->pool_id, &io) < 0)
      return {grpc::StatusCode::NOT_FOUND, "no pool of " + volume_id};
    rbd_image_t image = nullptr;
    const std::string name = "csi-vol-" + handle->uuid;
    int r =
        read_only ? rbd_open_read_only(io, name.c_str(), &image, nullptr) : rbd_open(io, name.c_str(), &image, nullptr);
    if (r >= 0) {
      r = work(image);
      rbd_close(image);
    }
    rados_ioctx_destroy(io);
    if (r < 0) return {grpc::StatusCode::NOT_FOUND, "volume " + volume_id + " has no image, or it cannot grow"};
    return grpc::Status::OK;
  }

  grpc::Status expand(const v1::ControllerExpandVolumeRequest& request, v1::ControllerExpandVolumeResponse& response) {
    std::uint64_t bytes = 0;
    auto grown = open(request.volume_id(), false, [&](rbd_image_t image) {
      const int r = rbd_get_size(image, &bytes);
      bytes = std::max(bytes, static_cast<std::uint64_t>(wanted_bytes(request.capacity_range())));
      return r < 0 ? r : rbd_resize(image, bytes);
    });
    if (!grown.ok()) return grown;
    response.set_capacity_bytes(static_cast<std::int64_t>(bytes));
    response.set_node_expansion_required(true);
    return grpc::Status::OK;
  }

  rados_t cluster_;
  Provisioner provisioner_;
  std::string pool_;
};

class Controller::Identity final : public v1::Identity::Service {
  grpc::Status GetPluginInfo(grpc::ServerContext*, const v1::GetPluginInfoRequest*,
                             v1::GetPluginInfoResponse* response) override {
    response->set_name("rbd.csi.ceph.com");
    response->set_vendor_version("test");
    return grpc::Status::OK;
  }
  grpc::Status GetPluginCapabilities(grpc::ServerContext*, const v1::GetPluginCapabilitiesRequest*,
                                     v1::GetPluginCapabilitiesResponse* response) override {
    response->add_capabilities()->mutable_service()->set_type(v1::PluginCapability::Service::CONTROLLER_SERVICE);
    return grpc::Status::OK;
  }
  grpc::Status Probe(grpc::ServerContext*, const v1::ProbeRequest*, v1::ProbeResponse*) override {
    return grpc::Status::OK;
  }
};

Controller::Controller(rados_t cluster, std::string cluster_id, std::string pool, const std::string& endpoint)
    : calls_(std::make_unique<Calls>(cluster, std::move(cluster_id), std::move(pool))),
      identity_(std::make_unique<Identity>()) {
  grpc::ServerBuilder builder;
  if (!endpoint.empty()) builder.AddListeningPort(endpoint, grpc::InsecureServerCredentials());
  builder.RegisterService(calls_.get());
  builder.RegisterService(identity_.get());
  server_ = builder.BuildAndStart();
  if (!server_) throw std::runtime_error("controller: cannot listen on " + endpoint);
}

Controller::~Controller() = default;

}  // namespace corbd::test
