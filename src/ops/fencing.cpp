#include "fencing.hpp"

#include "corbd/core/log.hpp"
#include "corbd/core/text.hpp"
#include "corbd/rpc/utf8.hpp"
#include "corbd/v1/fencing.grpc.pb.h"

namespace corbd::ops {
namespace {

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

/// Takes the key out of the request, because gRPC keeps a request until its call has ended.
Secret taken(const std::string& key) {
  Secret secret(key);
  wipe(const_cast<std::string&>(key));
  return secret;
}

result<volume::ImageAt> image_at(const v1::ImageAt& at) {
  Secret key = taken(at.key());
  if (!at.volume_id().empty()) return volume::ImageAt{at.volume_id()};
  const auto parts = pieces(at.image(), '/');
  if (parts.size() < 2 || parts.size() > 3 || parts.front().empty() || parts.back().empty())
    return Error{errc::invalid_argument,
                 "\"" + printable(at.image()) + "\" is not an image: write POOL/IMAGE or POOL/NAMESPACE/IMAGE"};
  if (at.cluster_id().empty() || at.user().empty() || key.empty())
    return Error{errc::invalid_argument,
                 "an image by its name needs a cluster, a Ceph user and that user's key; a volume with a record on "
                 "this node needs only its ID"};
  volume::ImageAt found;
  found.cluster_id = at.cluster_id();
  found.name = {std::string(parts.front()), parts.size() == 3 ? std::string(parts[1]) : "", std::string(parts.back())};
  found.user = at.user();
  found.key = std::move(key);
  return found;
}

void describe(v1::Holder& into, const plan::Holder& holder) {
  into.set_address(holder.address);
  into.set_client(holder.client);
  into.set_watches(holder.watches);
  into.set_locks(holder.locks);
  into.set_cookie(rpc::valid_utf8(holder.cookie));
  into.set_fenced(holder.blocked);
  into.set_node(rpc::valid_utf8(holder.node.name));
  into.set_node_state(std::string(plan::name(holder.node.state)));
  into.set_node_since(rpc::valid_utf8(holder.node.since));
  if (holder.node.attached) into.set_attached(*holder.node.attached);
  into.set_attached_since(holder.node.attached_since);
  into.set_text(rpc::valid_utf8(plan::text(holder)));
}

template <class Request>
fence::Asker asker_of(const Request& request) {
  return {request.cluster_id(), request.user(), taken(request.key())};
}

const char* kind_of(const image::BlocklistEntry& entry) {
  using Kind = image::BlocklistEntry::Kind;
  return entry.kind == Kind::range ? "range" : entry.kind == Kind::host ? "address" : "client";
}

std::int64_t ms_of(std::chrono::system_clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count();
}

void report(v1::FenceResponse& into, const fence::Report& done) {
  for (const auto& entry : done.changed) into.add_changed(entry.text());
  for (const auto& entry : done.remain) into.add_remain(entry.text());
  for (const auto& client : done.before.own) {
    const auto host = image::AddressBlock::host_of_client(client);
    for (const auto& block : done.blocks)
      if (host && block.contains(*host)) into.add_own(client);
  }
}

class Fencing final : public v1::Fencing::CallbackService {
 public:
  Fencing(rpc::Server& server, volume::Volumes& volumes, fence::Fencer& fencer)
      : server_(server), volumes_(volumes), fencer_(fencer) {}

  Reactor* GetHolders(Context* context, const v1::GetHoldersRequest* request,
                      v1::GetHoldersResponse* response) override {
    auto work = [this, request, response](Until until) { return holders(*request, *response, until); };
    return server_.unary(context, "GetHolders", subject_of(request->at()), work);
  }
  Reactor* Take(Context* context, const v1::TakeRequest* request, v1::TakeResponse* response) override {
    auto work = [this, request, response, by = rpc::peer_of(*context)](Until until) {
      return take(*request, *response, by, until);
    };
    return server_.unary(context, "Take", subject_of(request->at()), work);
  }
  Reactor* ListFences(Context* context, const v1::ListFencesRequest* request,
                      v1::ListFencesResponse* response) override {
    auto work = [this, request, response](Until until) { return list(*request, *response, until); };
    return server_.unary(context, "ListFences", request->cluster_id(), work);
  }
  Reactor* Fence(Context* context, const v1::FenceRequest* request, v1::FenceResponse* response) override {
    auto work = [this, request, response, by = rpc::peer_of(*context)](Until until) {
      return fence(*request, *response, by, until);
    };
    return server_.unary(context, "Fence", request->cluster_id(), work);
  }
  Reactor* Unfence(Context* context, const v1::FenceRequest* request, v1::FenceResponse* response) override {
    auto work = [this, request, response, by = rpc::peer_of(*context)](Until until) {
      return unfence(*request, *response, by, until);
    };
    return server_.unary(context, "Unfence", request->cluster_id(), work);
  }
  Reactor* SelfCheck(Context* context, const v1::SelfCheckRequest* request, v1::SelfCheckResponse* response) override {
    auto work = [this, request, response, by = rpc::peer_of(*context)](Until until) {
      return self_check(*request, *response, by, until);
    };
    return server_.unary(context, "SelfCheck", request->cluster_id(), work);
  }

 private:
  static std::string subject_of(const v1::ImageAt& at) { return at.volume_id().empty() ? at.image() : at.volume_id(); }

  task<result<>> holders(const v1::GetHoldersRequest& request, v1::GetHoldersResponse& response, Until until) {
    auto at = image_at(request.at());
    if (!at) co_return at.error();
    const auto found = co_await volumes_.holders(std::move(*at), until);
    if (!found) co_return found.error();
    response.set_image(found->key.text());
    response.set_exclusive_lock(found->exclusive_lock);
    response.set_dirty_cache(found->dirty_cache);
    for (const auto& holder : found->holders) describe(*response.add_holders(), holder);
    co_return result<>();
  }

  task<result<>> take(const v1::TakeRequest& request, v1::TakeResponse& response, std::string by, Until until) {
    auto at = image_at(request.at());
    if (!at) co_return at.error();
    at->also_ready = request.force();
    at->also_dirty = request.also_dirty();
    log::warning("admin.take", {{"image", subject_of(request.at())}, {"caller", by}});
    const auto done = co_await volumes_.take_image(std::move(*at), until);
    if (!done) co_return done.error();
    response.set_image(done->key.text());
    for (const auto& holder : done->holders) describe(*response.add_cut_off(), holder);
    co_return result<>();
  }

  task<result<>> list(const v1::ListFencesRequest& request, v1::ListFencesResponse& response, Until until) {
    const auto now = co_await fencer_.list(asker_of(request), until);
    if (!now) co_return now.error();
    for (const auto& entry : now->entries) {
      auto& shown = *response.add_entries();
      shown.set_what(entry.text());
      shown.set_kind(kind_of(entry));
      shown.set_until_at_ms(ms_of(entry.until));
      const image::Blocklist alone{"", {entry}};
      for (const auto& client : now->own) shown.set_own(shown.own() || alone.find(client) != nullptr);
    }
    co_return result<>();
  }

  static result<fence::Order> order_of(const v1::FenceRequest& request) {
    fence::Order order{{request.blocks().begin(), request.blocks().end()}};
    order.forced = request.force();
    order.dry_run = request.dry_run();
    if (request.duration().empty()) return order;
    const auto duration = fence::read_duration(request.duration());
    if (!duration) return duration.error();
    order.duration = *duration;
    return order;
  }

  task<result<>> fence(const v1::FenceRequest& request, v1::FenceResponse& response, std::string by, Until until) {
    auto asker = asker_of(request);
    auto order = order_of(request);
    if (!order) co_return order.error();
    if (!order->dry_run) log::warning("admin.fence", {{"cluster", asker.cluster_id}, {"caller", by}});
    const auto done = co_await fencer_.fence(std::move(asker), std::move(*order), until);
    if (!done) co_return done.error();
    report(response, *done);
    if (request.dry_run()) co_await show_touched(request.cluster_id(), done->blocks, response, until);
    co_return result<>();
  }

  task<result<>> unfence(const v1::FenceRequest& request, v1::FenceResponse& response, std::string by, Until until) {
    auto asker = asker_of(request);
    auto order = order_of(request);
    if (!order) co_return order.error();
    if (!order->dry_run) log::warning("admin.unfence", {{"cluster", asker.cluster_id}, {"caller", by}});
    const auto done = co_await fencer_.unfence(std::move(asker), std::move(*order), until);
    if (!done) co_return done.error();
    report(response, *done);
    co_return result<>();
  }

  task<result<>> self_check(const v1::SelfCheckRequest& request, v1::SelfCheckResponse& response, std::string by,
                            Until until) {
    auto asker = asker_of(request);
    if (request.unfence()) log::warning("admin.unfence", {{"cluster", asker.cluster_id}, {"caller", by}});
    const auto done = co_await fencer_.self_check(std::move(asker), request.unfence(), until);
    if (!done) co_return done.error();
    for (const auto& fence : done->fences) {
      auto& shown = *response.add_fences();
      shown.set_what(fence.entry.text());
      shown.set_kind(kind_of(fence.entry));
      shown.set_until_at_ms(ms_of(fence.entry.until));
      shown.set_verdict(std::string(fence::name(fence.verdict())));
      for (const auto& reason : fence.reasons) shown.add_reasons(rpc::valid_utf8(reason.what));
    }
    for (const auto& entry : done->removed) response.add_removed(entry.text());
    for (const auto& entry : done->remain) response.add_remain(entry.text());
    co_return result<>();
  }

  /// Lists what a block would cut off, as far as this node's volumes show it.
  task<> show_touched(std::string cluster_id, std::vector<image::AddressBlock> blocks, v1::FenceResponse& response,
                      Until until) {
    const auto seen = co_await volumes_.users(std::move(cluster_id), until);
    for (const auto& why : seen.not_looked) response.add_not_looked(rpc::valid_utf8(why));
    for (const auto& user : seen.users) {
      const auto host = image::AddressBlock::host_of_client(user.address);
      for (const auto& block : blocks) {
        if (!host || !block.contains(*host)) continue;
        auto& touched = *response.add_touched();
        touched.set_image(rpc::valid_utf8(user.image));
        touched.set_address(user.address);
        touched.set_client(user.client);
      }
    }
  }

  rpc::Server& server_;
  volume::Volumes& volumes_;
  fence::Fencer& fencer_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_fencing(rpc::Server& server, volume::Volumes& volumes, fence::Fencer& fencer) {
  return std::make_unique<Fencing>(server, volumes, fencer);
}

}  // namespace corbd::ops
