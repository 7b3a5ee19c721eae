#include "corbd/kube/rights.hpp"

#include <array>
#include <boost/json/object.hpp>

namespace corbd::kube {
namespace {

namespace json = boost::json;

const Resource kReviews{"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                        "selfsubjectaccessreviews.authorization.k8s.io"};

constexpr auto kRights = std::to_array<Right>({
    {"get", "storage.k8s.io", "volumeattachments", "an image whose lock is free stays unproven after a crash"},
    {"get", "storage.k8s.io", "csidrivers", "a driver without attachments is not recognised", true},
    {"get", "", "persistentvolumes", "volumes that ceph-csi staged are not taken over, and Events name no claim"},
    {"get", "", "secrets", "volumes without a key on this node are not taken over, and rotated keys are not found",
     false, true},
    {"get", "", "nodes", "topology and read affinity by labels do not work, and a missing attachment proves nothing"},
    {"list", "", "nodes", "other nodes' clients have no names"},
    {"watch", "", "nodes", "topology and read affinity by labels do not work"},
    {"create", "", "events", "people see no Events"},
    {"patch", "", "events", "repeated Events are not counted"},
});

json::object review_of(const Right& right, const std::string& driver) {
  json::object attributes{{"verb", json::string(right.verb)},
                          {"group", json::string(right.group)},
                          {"resource", json::string(right.resource)}};
  if (right.of_this_driver) attributes["name"] = driver;
  return {{"apiVersion", "authorization.k8s.io/v1"},
          {"kind", "SelfSubjectAccessReview"},
          {"spec", json::object{{"resourceAttributes", std::move(attributes)}}}};
}

/// Reads the server's answer. An absent field counts as unanswered.
Allowed allowed_by(const Right& right, const json::object& review) {
  const auto* status = review.if_contains("status");
  const auto* allowed =
      status != nullptr && status->is_object() ? status->get_object().if_contains("allowed") : nullptr;
  if (allowed == nullptr || !allowed->is_bool()) return {&right, std::nullopt, "the API server's review has no status"};
  return {&right, allowed->get_bool(), {}};
}

}  // namespace

std::span<const Right> rights() { return kRights; }

task<std::vector<Allowed>> review_rights(Api& api, std::string driver, Until until) {
  std::vector<Allowed> all;
  for (const Right& right : kRights) {
    const auto review = co_await api.create(kReviews, review_of(right, driver), until);
    all.push_back(review ? allowed_by(right, *review) : Allowed{&right, std::nullopt, review.error().error.text});
    // A server that does not answer one question does not answer nine.
    if (!review && review.error().error.code != errc::permission_denied) break;
  }
  co_return all;
}

}  // namespace corbd::kube
