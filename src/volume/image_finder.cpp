#include "image_finder.hpp"

#include <algorithm>
#include <cctype>

#include "corbd/cephcsi/affinity.hpp"
#include "corbd/cephcsi/parameters.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/text.hpp"
#include "corbd/plan/combination.hpp"

namespace corbd::volume {
namespace {

/// device-mapper allows names of up to 127 bytes and escapes all other characters.
result<> check_mapping_name(const std::string& id) {
  constexpr std::size_t longest = 127;
  constexpr std::string_view signs = "#+-.:=@_";
  const bool plain = std::ranges::all_of(id, [&](unsigned char c) {
    return (c < 0x80 && std::isalnum(c) != 0) || signs.find(static_cast<char>(c)) != signs.npos;
  });
  if (plain && mapping_name(id).size() <= longest) return {};
  return Error{errc::invalid_argument,
               "the ID of an encrypted volume may have at most 118 bytes of letters, digits and " + std::string(signs)};
}

/// The kernel encrypts folders of some types of filesystem only.
result<> check_filesystem(const std::string& id, const plan::Capability& capability) {
  if (!capability.block && host::encrypts_files(plan::with_fstype(capability).fstype)) return {};
  return error_of(plan::not_served::kFilesOnOther,
                  "volume " + id + " (" + (capability.block ? "raw block" : capability.fstype) + ")");
}

/// Whether the image may be in another place, although it is not in this one.
bool may_be_elsewhere(const Error& error) {
  return error.code == errc::not_found || error.code == errc::permission_denied || error.code == errc::unauthenticated;
}

image::Access access_to(std::string cluster_id, const Cluster& cluster, const Staged& wish) {
  return {std::move(cluster_id), cluster.monitors, wish.credential.user, wish.credential.key,
          cephcsi::with_policy(wish.source.serving.config, cluster.reads)};
}

void warn_of_ignored(const Volume& volume, const std::vector<std::string>& ignored, const std::string& of) {
  std::string all;
  for (const auto& sentence : ignored) all += (all.empty() ? "" : "; ") + sentence;
  if (!all.empty()) log::warning("volume.ignored", {{"volume", volume.id}, {"source", of}, {"ignored", all}});
}

}  // namespace

task<result<>> ImageFinder::resolve(Volume& volume, const Staged& wish) {
  auto found = co_await find_image(wish);
  if (!found) co_return found.error();
  auto served = co_await check_encryption(volume, wish, *found);
  if (!served) co_return served;
  warn_of_ignored(volume, wish.ignored, "the volume's attributes");
  if (const auto cluster = ports_.directory.find(found->cluster_id))
    warn_of_ignored(volume, cluster->ignored, "config.json");
  volume.facts.resolved = std::move(*found);
  co_return result<>();
}

/// Refuses before the image is opened. ceph-csi's journal overrides the attributes; one from before 3.8 names no type.
task<result<>> ImageFinder::check_encryption(const Volume& volume, const Staged& wish, image::Resolved& found) const {
  if (found.kms_id.empty()) found.kms_id = wish.kms_id;
  if (found.kms_id.empty()) co_return result<>();
  if (found.tenant.empty()) found.tenant = wish.claim.name_space;
  if (found.encryption_type.empty()) found.encryption_type = wish.encryption_type;
  if (found.encryption_type.empty()) found.encryption_type = cephcsi::kBlockEncryption;
  const std::string which = "volume " + volume.id + ", which is encrypted";
  if (auto known = cephcsi::check_encryption_type(found.encryption_type); !known)
    co_return with_context(which, known.error());
  const bool files = found.encryption_type == cephcsi::kFileEncryption;
  if (auto fits = files ? check_filesystem(volume.id, wish.capability) : check_mapping_name(volume.id); !fits)
    co_return fits;
  const auto terms = co_await ports_.kms.terms(found.kms_id, deadline());
  if (!terms) co_return with_context(which, terms.error());
  if (terms->needs_passphrase && wish.passphrase.empty()) co_return lacks_passphrase(volume.id);
  if (files && !terms->opens_files)
    co_return Error{errc::unimplemented, which + ": KMS \"" + printable(found.kms_id) +
                                             "\" gives no secret that opens encrypted files, in ceph-csi either: use "
                                             "encryptionType 'block'"};
  co_return result<>();
}

task<result<image::Resolved>> ImageFinder::find_image(const Staged& wish) {
  if (wish.reserved) return locate(wish);
  return find_by_name(wish);
}

/// Tries a cluster that cluster-mapping.json maps to first, if config.json has it.
task<result<image::Resolved>> ImageFinder::find_by_name(const Staged& wish) {
  std::string cluster_id = wish.source.cluster_id;
  const auto mapped = ports_.directory.mirrors_of(cluster_id);
  if (!mapped) co_return mapped.error();
  for (const auto& other : *mapped)
    if (ports_.directory.find(other)) {
      cluster_id = other;
      break;
    }
  const auto cluster = ports_.directory.find(cluster_id);
  if (!cluster) co_return cluster.error();
  auto to = access_to(cluster_id, *cluster, wish);
  image::Name name{wish.source.pool, wish.source.ns.empty() ? cluster->rados_namespace : wish.source.ns,
                   wish.source.image};
  co_return co_await ports_.clusters.resolve(std::move(to), std::move(name), deadline());
}

/// Looks first at the handle's place, then wherever cluster-mapping.json maps its cluster and pool.
task<result<image::Resolved>> ImageFinder::locate(const Staged& wish) {
  const image::Place own{wish.source.cluster_id, wish.reserved->pool_id};
  auto found = co_await locate_at(wish, own);
  if (found) co_return found;
  Error missing = found.error();
  const auto mapped = ports_.directory.mirrors_of(own);
  if (!may_be_elsewhere(missing)) {
    // The image does not count as gone: whether the other one may take over is not ours to decide.
    if (mapped && !mapped->empty())
      missing.text += "; cluster-mapping.json maps it to cluster " + mapped->front().cluster_id +
                      ", which is asked if config.json has cluster " + own.cluster_id +
                      " no more, or that cluster's monitors in its place";
    co_return missing;
  }
  if (!mapped) missing.text += "; " + mapped.error().text;
  const auto places = mapped ? *mapped : std::vector<image::Place>();
  for (const auto& place : places) {
    found = co_await locate_at(wish, place);
    if (found || !may_be_elsewhere(found.error())) co_return found;
    missing.text += "; mapped to pool " + std::to_string(place.pool_id) + " of cluster " + place.cluster_id + ": " +
                    found.error().text;
  }
  co_return missing;
}

task<result<image::Resolved>> ImageFinder::locate_at(const Staged& wish, image::Place place) {
  const auto cluster = ports_.directory.find(place.cluster_id);
  if (!cluster) co_return cluster.error();
  auto to = access_to(place.cluster_id, *cluster, wish);
  image::Reserved reserved = *wish.reserved;
  reserved.pool_id = place.pool_id;
  co_return co_await ports_.clusters.locate(std::move(to), std::move(reserved), cluster->rados_namespace, deadline());
}

}  // namespace corbd::volume
