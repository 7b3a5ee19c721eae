#include "client_steps.hpp"

#include <bit>
#include <utility>

#include "corbd/core/log.hpp"
#include "release.hpp"

namespace corbd::volume {
namespace {

/// A stage of a volume that is served waits no longer for a silent cluster.
constexpr std::chrono::seconds kTriedWithin{10};
constexpr std::chrono::seconds kTriesUserAgain{60};
/// Another look at a client that seems deaf. librados waits at most 15 s before it connects to an OSD again
/// (docs/sources.md#rotated-keys).
constexpr std::chrono::seconds kComparesAgain{25};
constexpr std::chrono::seconds kComparedWithin{20};
/// A successor of a deaf client that is silent so soon has another cause, such as an outage.
constexpr std::chrono::minutes kSparesSuccessor{10};

/// True after 3 denials in a row, then 6, 12, 24: other volumes of the client notice when it is given up.
constexpr bool is_look_due(unsigned denied) { return denied % 3 == 0 && std::has_single_bit(denied / 3); }

// The device's I/O stalls during this time, for requests that were read. Nothing has changed until then.
constexpr std::chrono::milliseconds kDrainsWithin{1600};

}  // namespace

task<result<>> ClientSteps::may_serve(const Volume& volume, image::Access to) {
  const Until until = deadline().at_most(clock_.now() + kTriedWithin);
  const auto header = co_await ports_.clusters.header(to, volume.record->key, until);
  if (!header) co_return header.error();
  if (volume.record->use.read_only) co_return result<>();
  co_return co_await ports_.clusters.may_write(std::move(to), volume.record->key, until);
}

task<result<>> ClientSteps::try_credential(Volume& volume) {
  const Credential before = volume.credentials.known();
  const bool only_one = volume.credentials.unproven();
  volume.credentials.tried();
  const auto to = access(volume), old = access_of(ports_, *volume.record, before);
  if (!to || !old) co_return result<>();
  auto may = co_await may_serve(volume, *to);
  // The present way to heal the volume must not become less. A user that may fence no more than the old one is no loss.
  if (may && !volume.record->use.read_only && !only_one && !ports_.clusters.cannot_fence(*old))
    if (const auto why = ports_.clusters.cannot_fence(*to)) may = Error{errc::permission_denied, *why};
  if (may && volume.facts.next_refused) may = *volume.facts.next_refused;
  if (!may) {
    // The next try connects anew, and so has the user's present rights.
    ports_.clusters.retire(*to);
    volume.unused_key = UnusedKey{volume.credentials.asks_with(), may.error().text};
    log::warning("credential.not_taken", {{"volume", volume.id},
                                          {"user", to->user},
                                          {"error", may.error().text},
                                          {"effect", only_one ? "the volume has no key that works, until its next "
                                                                "stage or its Secret brings one"
                                                              : "the volume keeps the user and key that serve it"}});
    if (is_refusal(may.error()))
      health_.notify(volume.id, {"CredentialRefused", true,
                                 "Its node-stage Secret has a user and key that cannot serve it: " + may.error().text +
                                     ". Correct it before this node's agent starts again."});
    co_return result<>();
  }
  volume.credentials.worked();
  volume.unused_key.reset();
  volume.facts.other_refused = false;
  log::info("credential.replaced", {{"volume", volume.id}, {"user", to->user}, {"previous_user", before.user}});
  if (!only_one) ports_.clusters.retire(*old);
  co_return result<>();
}

/// One trial answers for all volumes of a client. A client whose user is let in gets no answers because the cluster is
/// silent, or because its user was away for some time.
task<result<>> ClientSteps::look_at_user(Volume& volume) {
  const OwnImage& open = *volume.server.own();
  const auto old = access_of(ports_, *volume.record, open.opened_as);
  if (!old) co_return old.error();
  std::erase_if(trials_, [&](const auto& one) { return !one.second.under_way && one.second.again <= clock_.now(); });
  Trial& trial = trials_[open.image->client()];
  if (const auto under_way = trial.under_way) {
    static_cast<void>(co_await under_way->wait(deadline()));
  } else if (trial.again == time_point()) {
    trial.under_way = std::make_shared<Event>(control_, clock_);
    const auto may = co_await ports_.clusters.may_serve_anew(*old, volume.record->key, !volume.record->use.read_only,
                                                             deadline().at_most(clock_.now() + kTriedWithin));
    trial.refused = !may && may.error().code == errc::unauthenticated;
    trial.let_in = may.has_value();
    trial.again = clock_.now() + kTriesUserAgain;
    std::exchange(trial.under_way, nullptr)->set();
  }
  volume.facts.user_refused = trial.refused;
  if (trial.let_in) volume.facts.client_deaf = co_await is_deaf(volume);
  co_return result<>();
}

/// Each volume looks for itself, because a client may hear some of the OSDs. One of a client at a time.
task<bool> ClientSteps::is_deaf(const Volume& volume) {
  const OwnImage* const open = volume.server.own();
  if (open == nullptr) co_return false;
  const device::Link* const link = volume.server.link();
  if (volume.server.unanswered() < kSilentAfter && !open->closing && !volume.server.is_session_stuck()) co_return false;
  const time_point now = clock_.now();
  std::erase_if(compares_again_, [&](const auto& one) { return one.second <= now; });
  std::erase_if(gave_up_deaf_, [&](const auto& one) { return one.second + kSparesSuccessor <= now; });
  const auto before = gave_up_deaf_.find({volume.record->key.fsid, open->opened_as.user});
  const bool successor = before != gave_up_deaf_.end() && open->opened_at >= before->second;
  const std::string client = open->image->client();
  if (successor || compares_again_.contains(volume.id) || !comparing_.insert(client).second) co_return false;
  const auto hearing = co_await open->image->hearing(link != nullptr ? link->oldest_range() : image::Range{},
                                                     deadline().at_most(clock_.now() + kComparedWithin));
  comparing_.erase(client);
  const bool unsure = hearing && *hearing == image::Hearing::unsure;
  compares_again_[volume.id] = clock_.now() + (unsure ? kComparesAgain : kTriesUserAgain);
  co_return hearing && *hearing == image::Hearing::deaf;
}

task<result<>> ClientSteps::give_up_judged(Volume& volume) {
  const OwnImage& open = *volume.server.own();
  const auto old = access_of(ports_, *volume.record, open.opened_as), to = access(volume);
  result<> may = to ? result<>() : to.error();
  if (to && volume.server.serves())
    may = co_await ports_.clusters.may_serve_anew(*to, volume.record->key, !volume.record->use.read_only,
                                                  deadline().at_most(clock_.now() + kTriedWithin));
  volume.facts.other_refused = !may && may.error().code == errc::unauthenticated;
  volume.facts.client_judged = !volume.facts.other_refused;
  if (!may) {
    log::warning("client.not_replaced", {{"volume", volume.id},
                                         {"client", open.image->client()},
                                         {"user", volume.credentials.asks_with().user},
                                         {"error", may.error().text}});
    co_return result<>();
  }
  if (volume.facts.client_deaf) gave_up_deaf_[{volume.record->key.fsid, open.opened_as.user}] = clock_.now();
  // Its other clients are in the same state, and nobody would be told: what is opened next connects anew.
  if (old) ports_.clusters.retire_all(*old);
  give_up(volume, volume.facts.client_deaf
                      ? "the cluster answers another client of its user " + open.opened_as.user + ", and not this one"
                      : "the cluster refuses its user " + open.opened_as.user +
                            ", so its requests and its close may never end");
  co_return result<>();
}

void ClientSteps::give_up(Volume& volume, const std::string& why) {
  image::Image& image = *volume.server.image();
  log::warning("client.given_up", {{"volume", volume.id}, {"client", image.client()}, {"cause", why}});
  image.give_up_client();
}

void ClientSteps::not_changed(Volume& volume, const Credential& next, const Error& why) const {
  volume.unused_key = UnusedKey{next, why.text};
  log::warning("client.not_changed", {{"volume", volume.id},
                                      {"client", volume.server.image()->client()},
                                      {"user", next.user},
                                      {"error", why.text},
                                      {"effect", "the volume stays with its present client"}});
  // The step try_credential() is next for a new pair, and tells of its failure.
  if (volume.credentials.untried()) return;
  const auto name = [](const Credential& one) {
    return "client." + one.user + " (key " + shown(one.user, one.key).fingerprint + ")";
  };
  health_.notify(volume.id,
                 {"ClientNotChanged", true,
                  "The volume still uses " + name(volume.server.own()->opened_as) + " instead of " + name(next) + ": " +
                      why.text + ". The agent tries again. Keep the earlier user and key until then."});
}

task<result<>> ClientSteps::open_next(Volume& volume) {
  volume.facts.next_tried = true;
  auto to = co_await find_access(volume);
  result<OwnImage> opened = Error{};
  if (to)
    opened = co_await images_.open_as_asked(volume, *to, deadline().at_most(clock_.now() + kTriedWithin));
  else
    opened = to.error();
  if (opened) {
    volume.client_change.next = std::move(*opened);
    co_return result<>();
  }
  volume.facts.next_refused = opened.error();
  not_changed(volume, volume.credentials.asks_with(), opened.error());
  co_return result<>();
}

task<result<>> ClientSteps::change(Volume& volume) {
  volume.facts.client_changed = true;
  const auto begun = clock_.now();
  OwnImage& open = *volume.server.own();
  const std::string client = open.image->client();
  // An older request means that the cluster does not answer it, and a drained link reads nothing more.
  result<Fd> socket = Error{errc::timed_out, "a request waits for the cluster"};
  if (volume.server.link()->oldest() < kAnswersWithin)
    socket = co_await release(volume, ports_, For::this_agent, {begun + kDrainsWithin}, deadline());
  if (!socket && volume.server.serves() && open.lock_kept == LockKept::no) {
    // A leaving agent has drained it too.
    if (!volume.server.own_link()->drained) volume.server.link()->undrain();
    not_changed(volume, volume.credentials.known(), socket.error());
    co_return result<>();
  }
  // An idle client would stay for the next image of its user, who may be removed.
  if (const auto old = access_of(ports_, *volume.record, open.opened_as)) ports_.clusters.retire_all(*old);
  volume.history.unserved_since = begun;
  volume.client_change.under_way = true;
  if (!socket && volume.server.link() != nullptr) {
    const bool unsure = open.lock_kept == LockKept::unsure;
    log::warning("client.not_changed",
                 {{"volume", volume.id},
                  {"client", client},
                  {"user", volume.credentials.known().user},
                  {"error", socket.error().text},
                  {"effect", unsure ? "the client is given up, because nobody knows whether the lock was kept"
                                    : "the image is closed, and opened again"}});
    *open.access_lost = true;
    unsure ? open.image->give_up_client() : volume.server.link()->hold();
    co_return result<>();
  }
  log::info("client.changed",
            {{"volume", volume.id}, {"previous_user", open.opened_as.user}, {"user", volume.credentials.known().user}});
  if (!socket) {
    open.closing = true;
    co_return result<>();
  }
  volume.client_change.previous = volume.server.take_image();
  images_.forget_facts(volume);
  volume.facts.client_changed = true;
  co_return result<>();
}

task<> ClientSteps::end_change(Volume& volume) {
  ClientChange& change = volume.client_change;
  if (auto unused = std::exchange(change.next, std::nullopt))
    close_in_background_(nullptr, std::move(unused->image), std::nullopt);
  if (std::exchange(change.under_way, false) && !volume.server.serves())
    health_.report_failure(volume, "the client of its present user does not serve it yet");
  // Its client ends without an image, and with it the watch of a lock that nobody took.
  if (!volume.record) change.previous.reset();
  if (!change.previous || !volume.server.serves()) co_return;
  const auto previous = std::exchange(change.previous, nullptr);
  co_await previous->lock_taken_over(soon());
}

/// Notes a denial. A client keeps the rights that its user had when it connected, so restored rights do not reach it.
task<result<>> ClientSteps::note_denial(Volume& volume) {
  OwnImage* const open = volume.server.own();
  if (open == nullptr || !is_look_due(++volume.history.denied)) co_return result<>();
  const auto to = access(volume);
  if (!to) co_return result<>();
  open->image->retire_client();
  const auto may = co_await may_serve(volume, *to);
  if (!may) {
    log::warning("client.denied",
                 {{"volume", volume.id}, {"client", open->image->client()}, {"error", may.error().text}});
    co_return result<>();
  }
  give_up(volume, "the cluster denies it what it lets a new client do");
  *open->access_lost = true;
  volume.history.access_lost = true;
  co_return co_await images_.close(volume);
}

}  // namespace corbd::volume
