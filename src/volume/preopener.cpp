#include "preopener.hpp"

#include <algorithm>
#include <memory>

#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

// The agent that serves needs the machine too.
constexpr int kOpenAtOnce = 4;
// All nodes of a cluster spread their first question to the API server over five seconds.
constexpr std::chrono::seconds kPolicyWithin{8};
constexpr std::chrono::milliseconds kLooksForPolicy{100};
// Limit for all lost clusterIDs together. The images of clusters that answer need the rest of the time.
constexpr std::chrono::seconds kIdentifiesWithin{15};
// Limit for one image, so that a silent one leaves the others their turn.
constexpr std::chrono::seconds kLooksAtImageFor{5};
constexpr std::chrono::seconds kAsksForRightFor{5};
// One answer that comes late, or not at all, does not mean that there is no API server.
constexpr int kAsksForApi = 3;
constexpr std::chrono::seconds kAsksForApiAgain{2};

/// Whether only the attachment can prove the image ours: neither a lock nor the kind of its use does. The image may
/// have lost the feature that it had when it was staged.
bool rests_on_attachment(const Record& record, bool exclusive_lock) {
  return !exclusive_lock && record.use.writes_alone();
}

/// Whether there is an API server that knows attachments.
bool is_answered(const Attachment& attachment) {
  using State = Attachment::State;
  return attachment.state == State::here || attachment.state == State::away || attachment.maybe_away;
}

/// A refusal that affects other images too: the key is wrong, or the user lacks a right to the pool.
struct ShutOut {
  image::Access access;
  std::optional<image::Key> of;  ///< pool and namespace; nothing: all of them
  bool writes = false;
  std::string why;
  bool covers(const image::Access& other, const image::Key& key, bool writing) const {
    if (access != other) return false;
    return !of || (of->pool_id == key.pool_id && of->ns == key.ns && writes == writing);
  }
};

}  // namespace

struct Preopener::Preopening {
  struct Image {
    Record record;
    Credential credential;
    /// Access to the image; an error: its key file was not read, and only its Secret may have the key.
    result<image::Access> access;
  };
  /// Whether a user and key may write to a pool and namespace.
  struct Right {
    Right(const executor& control, Clock& clock, image::Access with, const image::Key& to)
        : access(std::move(with)), pool_id(to.pool_id), ns(to.ns), answered(control, clock) {}
    bool is_of(const image::Access& with, const image::Key& to) const {
      return access == with && pool_id == to.pool_id && ns == to.ns;
    }
    image::Access access;
    std::int64_t pool_id;
    std::string ns;
    Event answered;
    result<> may;
  };
  std::vector<Image> left;
  std::vector<Image> of_lost_clusters;  ///< tried last: their cluster was not found, or they have no key file
  std::vector<Identified> identified;
  std::vector<std::pair<image::Access, std::size_t>> connections;  ///< each with its number of images
  std::vector<std::shared_ptr<Right>> rights;
  std::vector<std::string> unopened;
  std::optional<bool> api_answers;  ///< set once it was asked
  Until until;
};

/// Waits for the policies: a connection serves one read policy, so one that is prepared for another would be useless.
task<> Preopener::await_policies(const std::vector<Record>& records, Until until) {
  std::set<std::string> clusters;
  for (const auto& record : records) clusters.insert(record.source.cluster_id);
  const auto unknown = [this](const std::string& id) {
    const auto cluster = ports_.directory.find(id);
    return cluster && !cluster->reads_unknown.empty();
  };
  const auto by = std::min(until.deadline, clock_.now() + kPolicyWithin);
  while (std::ranges::any_of(clusters, unknown) && clock_.now() < by)
    static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + kLooksForPolicy));
}

/// Identifies once for all volumes of a cluster and user, so that a silent one takes its time once.
task<result<>> Preopener::identify(std::vector<Identified>& known, const Record& record, const Credential& as,
                                   Until until) const {
  const auto place = std::ranges::find_if(known, [&](const auto& one) { return one.is_of(record, as); });
  if (place != known.end()) co_return place->done;
  auto done = co_await identify_cluster(ports_, record, as, until);
  if (!done)
    log::info("cluster.not_connected_ahead", {{"cluster", record.source.cluster_id}, {"error", done.error().text}});
  known.push_back({record.source.cluster_id, record.key.fsid, as, done});
  co_return done;
}

/// Several volumes may ask at once. An answer to one of them counts for all.
task<> Preopener::ask_for_api(Preopening& preopening, const std::string& volume_id) {
  for (int asked = 1; !preopening.api_answers; ++asked) {
    const Attachment attachment = co_await ports_.orchestrator.attachment(volume_id);
    const bool last = asked == kAsksForApi || clock_.now() >= preopening.until.deadline;
    if (is_answered(attachment)) {
      preopening.api_answers = true;
    } else if (last && !preopening.api_answers) {
      preopening.api_answers = false;
      log::warning("attachments.not_known",
                   {{"volume", volume_id},
                    {"asked", asked},
                    {"error", attachment.why},
                    {"effect", "this agent may take over volumes that were staged under another name (--nodeid)"}});
    } else if (!last) {
      co_await sleep_until(control_, clock_, clock_.now() + kAsksForApiAgain);
    }
  }
}

/// Whether its VolumeAttachment would be looked up under a wrong name. Without an API server nobody looks it up.
task<bool> Preopener::has_other_name(Preopening& preopening, const Record& record, bool exclusive_lock) {
  const auto other = plan::other_name(record.names, {policy_.driver, policy_.node});
  if (other.empty() || !rests_on_attachment(record, exclusive_lock)) co_return false;
  co_await ask_for_api(preopening, record.volume_id);
  if (!*preopening.api_answers) co_return false;
  log::warning("image.not_preopened", {{"volume", record.volume_id}, {"error", other}});
  co_return true;
}

task<> Preopener::plan_one(Preopening& preopening, const Record& record, Until identifying) {
  auto key = co_await ports_.records.load_key(record);
  if (!key) {
    preopening.of_lost_clusters.push_back({record, {}, key.error()});
    co_return;
  }
  const Credential credential{record.user, std::move(*key)};
  const bool found = (co_await identify(preopening.identified, record, credential, identifying)).has_value();
  const auto access = access_of(ports_, record, credential);
  if (!access) {
    log::info("image.not_preopened", {{"volume", record.volume_id}, {"error", access.error().text}});
    preopening.unopened.push_back(record.volume_id);
    co_return;
  }
  (found ? preopening.left : preopening.of_lost_clusters).push_back({record, credential, *access});
  if (!found) co_return;
  auto& all = preopening.connections;
  const auto place = std::ranges::find(all, *access, &std::pair<image::Access, std::size_t>::first);
  if (place == all.end())
    all.emplace_back(*access, 1);
  else
    ++place->second;
}

task<result<Preopener::Preopening>> Preopener::plan(Until until) {
  const auto records = co_await ports_.records.peek(until);
  if (!records) co_return records.error();
  co_await await_policies(*records, until);
  Preopening preopening;
  preopening.until = until;
  Until identifying = until;
  identifying.deadline = std::min(until.deadline, clock_.now() + kIdentifiesWithin);
  // A volume that was given up has a tombstone, which needs no image.
  for (const auto& record : *records)
    if (record.device.index && traits(record.device.kind).served && !record.failed)
      co_await plan_one(preopening, record, identifying);
  preopening.left.insert(preopening.left.begin(), std::make_move_iterator(preopening.of_lost_clusters.begin()),
                         std::make_move_iterator(preopening.of_lost_clusters.end()));
  co_return preopening;
}

task<> Preopener::connect_ahead(image::Access access, std::size_t images, Until until) {
  const auto prepared = co_await ports_.clusters.prepare(access, images, until);
  if (!prepared)
    log::info("cluster.not_connected_ahead", {{"cluster", access.cluster_id}, {"error", prepared.error().text}});
}

/// Opens as a reader, which leaves no trace at the image. The effects stay with us: sessions with the OSDs, librbd's
/// code in memory, and whether this agent will be let in. Afterwards the predecessor may have nothing to go back to.
task<> Preopener::preopen_images(Preopening& preopening) {
  while (!preopening.left.empty()) {
    const auto image = std::move(preopening.left.back());
    preopening.left.pop_back();
    result<bool> opened = false;
    if (image.access)
      opened = co_await open_once(preopening, image.record, *image.access);
    else
      opened = image.access.error();
    if (!opened && (!image.access || is_refusal(opened.error())))
      opened = co_await open_with_secret(preopening, image.record, image.credential, opened.error());
    if (opened && !co_await has_other_name(preopening, image.record, *opened)) continue;
    if (!opened) log::info("image.not_preopened", {{"volume", image.record.volume_id}, {"error", opened.error().text}});
    preopening.unopened.push_back(image.record.volume_id);
  }
}

/// Returns whether it has exclusive-lock. It also asks for the right to write, because a reader is let in without.
task<result<bool>> Preopener::open_once(Preopening& preopening, const Record& record, image::Access access) {
  image::OpenOptions options;
  options.read_only = true;
  options.refuse_as_writer = !record.use.read_only;
  auto opened = co_await ports_.clusters.open(access, record.key, std::move(options), preopening.until);
  if (!opened) co_return opened.error();
  const bool exclusive_lock = (*opened)->exclusive_lock();
  static_cast<void>(co_await (*opened)->close(preopening.until));
  if (record.use.read_only) co_return exclusive_lock;
  const auto may = co_await may_write(preopening, record.key, std::move(access));
  if (!may) co_return may.error();
  co_return exclusive_lock;
}

/// Only a refusal counts, as in not_again(): a full pool or a silent OSD proves nothing about rights.
task<result<>> Preopener::may_write(Preopening& preopening, const image::Key& key, image::Access access) {
  const Until soon = preopening.until.at_most(clock_.now() + kAsksForRightFor);
  const auto place =
      std::ranges::find_if(preopening.rights, [&](const auto& right) { return right->is_of(access, key); });
  if (place != preopening.rights.end()) {
    const auto known = *place;
    static_cast<void>(co_await known->answered.wait(soon));
    co_return known->may;
  }
  const auto asked = std::make_shared<Preopening::Right>(control_, clock_, access, key);
  preopening.rights.push_back(asked);
  const auto may = co_await ports_.clusters.may_write(std::move(access), key, soon);
  if (!may && is_refusal(may.error())) asked->may = may.error();
  asked->answered.set();
  co_return asked->may;
}

/// Tries the Secret's credential. The user or key was rotated while the volume was served, and no stage has brought the
/// new one since. Or the key file is gone, and `refused` is empty.
task<result<bool>> Preopener::open_with_secret(Preopening& preopening, const Record& record, Credential refused,
                                               Error error) {
  if (clock_.now() >= preopening.until.deadline) co_return error;
  const StageSecret secret = co_await ports_.orchestrator.stage_secret(record.volume_id, record.claim.volume);
  Credentials credentials;
  credentials.loaded(refused);
  if (!secret.credential || !credentials.take(*secret.credential, error.code))
    co_return with_secret(std::move(error), secret, false);
  const Until identifying = preopening.until.at_most(clock_.now() + kIdentifiesWithin);
  static_cast<void>(co_await identify(preopening.identified, record, *secret.credential, identifying));
  const auto access = access_of(ports_, record, *secret.credential);
  if (!access) co_return access.error();
  const auto opened = co_await open_once(preopening, record, *access);
  if (!opened)
    co_return is_refusal(opened.error()) ? with_secret(opened.error(), secret, !refused.empty()) : opened.error();
  log::info("credential.from_secret",
            {{"volume", record.volume_id}, {"secret", secret.name}, {"user", secret.credential->user}});
  newer_.insert_or_assign(record.volume_id, Newer{std::move(refused), *secret.credential});
  co_return opened;
}

std::optional<Credential> Preopener::instead_of(const std::string& volume_id, const Credential& loaded) const {
  const auto place = newer_.find(volume_id);
  if (place == newer_.end() || place->second.refused != loaded) return std::nullopt;
  return place->second.taken;
}

task<result<std::vector<std::string>>> Preopener::preopen(Until until) {
  auto preopening = co_await plan(until);
  if (!preopening) co_return preopening.error();
  Gate& connecting = gates_.emplace_back(control_, clock_);
  for (auto& [access, images] : preopening->connections)
    connecting.spawn(connect_ahead(std::move(access), images, until));
  co_await connecting.close({});
  Gate& opening = gates_.emplace_back(control_, clock_);
  for (int i = 0; i < kOpenAtOnce; ++i) opening.spawn(preopen_images(*preopening));
  co_await opening.close({});
  co_return std::move(preopening->unopened);
}

/// Refreshes first, because no client is told of some settings, such as a pool's. A pool that does not answer keeps one
/// of the threads that open images, and no more.
task<std::string> Preopener::image_refused_again(const std::string& volume_id, std::int64_t pool,
                                                 std::set<std::int64_t>& silent_pools, Until until) const {
  const auto image_of = [&]() -> image::Image* {
    const Volume* known = volumes_.find(volume_id);
    return known == nullptr ? nullptr : known->server.image();
  };
  if (image::Image* image = image_of();
      image != nullptr && !silent_pools.contains(pool) && clock_.now() < until.deadline) {
    const auto looked = co_await image->refresh(until.at_most(clock_.now() + kLooksAtImageFor));
    if (!looked && looked.error().code == errc::timed_out) silent_pools.insert(pool);
  }
  // The image may have been closed meanwhile.
  const image::Image* still = image_of();
  co_return still == nullptr ? std::string() : still->refused_again();
}

/// Returns why an agent that starts anew would not find the volume's cluster. Empty: it may. A config.json that cannot
/// be read may be one that is being edited, and a cluster that does not answer may be the volume's.
task<std::string> Preopener::not_located(std::vector<Identified>& known, const Record& record, const Credential& as,
                                         Until until) const {
  if (const auto at = cluster_of(ports_, record); !at) co_return why_cluster_gone(ports_, record);
  const auto done = co_await identify(known, record, as, until);
  const bool certain = !done && (is_refusal(done.error()) || done.error().code == errc::failed_precondition);
  co_return certain ? done.error().text : std::string();
}

/// Uses a new client: the connections that serve were let in long ago, so they prove nothing about today.
task<std::map<std::string, std::string>> Preopener::not_again(std::vector<std::string> volume_ids, Until until) const {
  std::map<std::string, std::string> found;
  std::vector<ShutOut> shut_out;
  std::set<std::int64_t> silent_pools;
  std::vector<Identified> identified;
  const Until identifying = until.at_most(clock_.now() + kIdentifiesWithin);
  for (const auto& id : volume_ids) {
    const Volume* known = volumes_.find(id);
    if (known == nullptr || !known->record || known->record->failed || known->credentials.known().empty()) continue;
    // The volume may be gone after any wait.
    const Record record = *known->record;
    const Credential as = known->credentials.known();
    if (auto why = co_await not_located(identified, record, as, identifying); !why.empty()) {
      found[id] = std::move(why);
      continue;
    }
    const auto access = access_of(ports_, record, as);
    const bool asks = access && is_own_cluster(ports_, record, *access);
    const image::Key& key = record.key;
    const bool writes = !record.use.read_only;
    const auto before =
        std::ranges::find_if(shut_out, [&](const auto& one) { return asks && one.covers(*access, key, writes); });
    if (before != shut_out.end()) {
      found[id] = before->why;
      continue;
    }
    if (auto why = co_await image_refused_again(id, key.pool_id, silent_pools, until); !why.empty()) {
      found[id] = std::move(why);
      continue;
    }
    if (!asks || clock_.now() >= until.deadline) continue;
    const auto may = co_await ports_.clusters.may_serve_anew(*access, key, writes, until);
    if (may || (!is_refusal(may.error()) && may.error().code != errc::not_found)) continue;
    found[id] = may.error().text;
    if (may.error().code == errc::unauthenticated) shut_out.push_back({*access, {}, writes, may.error().text});
    if (may.error().code == errc::permission_denied) shut_out.push_back({*access, key, writes, may.error().text});
  }
  co_return found;
}

task<> Preopener::fence_one(image::Access access, Until until) {
  static_cast<void>(co_await ports_.clusters.fence_dead(std::move(access), until));
}

task<> Preopener::fence_early(Until until) {
  std::vector<image::Access> clusters;
  for (const auto& [id, volume] : volumes_) {
    if (!volume->history.unserved_since || volume->credentials.known().empty()) continue;
    auto access = access_of(ports_, *volume->record, volume->credentials.known());
    if (access && std::ranges::find(clusters, *access) == clusters.end()) clusters.push_back(std::move(*access));
  }
  Gate& fencing = gates_.emplace_back(control_, clock_);
  for (auto& access : clusters) fencing.spawn(fence_one(std::move(access), until));
  co_await fencing.close({});
}

}  // namespace corbd::volume
