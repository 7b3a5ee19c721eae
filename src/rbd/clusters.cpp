#include "corbd/rbd/clusters.hpp"

#include "async.hpp"
#include "connections.hpp"
#include "corbd/core/log.hpp"
#include "failure.hpp"
#include "full_pool.hpp"
#include "header.hpp"
#include "identity.hpp"
#include "image.hpp"
#include "journal.hpp"
#include "locks.hpp"
#include "mon_command.hpp"
#include "users.hpp"

namespace corbd::rbd {
namespace {

result<Target> find_by_name(Connection& connection, const image::Name& name) {
  const UnderWay call(connection);
  auto id = pool_id(connection.cluster, name.pool);
  if (!id) return id.error();
  auto pool = open_pool(connection.cluster, *id, name.ns);
  if (!pool) return pool.error();
  return Target{*id, std::move(*pool), name};
}

task<result<image::Resolved>> identify(Connections& connections, const Lease& lease, const Target& target) {
  auto read = [held = lease.connection(), &target] {
    const UnderWay call(*held);
    return read_identity(*held, target);
  };
  co_return co_await lease->threads->names.call_to_end(connections.gate(), std::move(read),
                                                       "reading image " + target.name.text());
}

task<result<image::Resolved>> resolve_to_end(Connections& connections, const Lease& lease, const image::Name& name) {
  auto find = [held = lease.connection(), name] { return find_by_name(*held, name); };
  auto target =
      co_await lease->threads->cluster.call_to_end(connections.gate(), std::move(find), "looking up pool " + name.pool);
  if (!target) co_return target.error();
  co_return co_await identify(connections, lease, *target);
}

template <class T>
result<T> noted(Connections& connections, const std::shared_ptr<Connection>& asked, result<T> answer) {
  if (!answer && answer.error().code == errc::permission_denied) connections.retire_denied(asked);
  // timed_out: there was no thread. unavailable: the cluster is silent. Neither is an answer.
  if (answer || (answer.error().code != errc::timed_out && answer.error().code != errc::unavailable))
    connections.note_answer(*asked, true);
  return answer;
}

/// The volume is served without this too, and the provisioner's next request writes it.
task<> complete_journal(Connections& connections, const Lease& lease, std::int64_t pool_id,
                        const image::Reserved& reserved, image::Key key) {
  auto write = [held = lease.connection(), pool_id, uuid = reserved.uuid, key] {
    return write_image_id(*held, pool_id, key.ns, uuid, key.image_id);
  };
  const auto written =
      co_await lease->threads->names.call_to_end(connections.gate(), std::move(write), "writing a journal");
  if (!written) log::warning("journal.not_written", {{"image", key.text()}, {"error", written.error().text}});
}

task<result<image::Resolved>> locate_to_end(Connections& connections, const Lease& lease,
                                            const image::Reserved& reserved, const std::string& ns) {
  auto find = [held = lease.connection(), reserved, ns] {
    const UnderWay call(*held);
    return find_by_journal(*held, reserved, ns);
  };
  auto located = co_await lease->threads->names.call_to_end(connections.gate(), std::move(find),
                                                            "reading the journal of " + reserved.uuid);
  if (!located) co_return located.error();
  auto found = co_await identify(connections, lease, located->target);
  if (!found) co_return found;
  found->kms_id = located->kms_id;
  found->encryption_type = located->encryption_type;
  found->tenant = located->tenant;
  if (located->lacks_id) co_await complete_journal(connections, lease, *located->lacks_id, reserved, found->key);
  co_return found;
}

task<result<image::Resolved>> resolve_and_note(Connections& connections, Lease lease, image::Name name) {
  auto found = co_await resolve_to_end(connections, lease, name);
  co_return noted(connections, lease.connection(), std::move(found));
}

task<result<image::Resolved>> locate_and_note(Connections& connections, Lease lease, image::Reserved reserved,
                                              std::string ns) {
  auto found = co_await locate_to_end(connections, lease, reserved, ns);
  co_return noted(connections, lease.connection(), std::move(found));
}

task<result<image::Header>> look_and_note(Connections& connections, Lease lease, image::Key key) {
  auto look = [held = lease.connection(), key] {
    const UnderWay call(*held);
    return look_at_header(*held, key);
  };
  auto found = co_await lease->threads->images.call_to_end(connections.gate(), std::move(look),
                                                           "looking at the header of image " + key.text());
  co_return noted(connections, lease.connection(), std::move(found));
}

task<result<>> try_and_note(Connections& connections, Lease lease, image::Key key) {
  auto attempt = [held = lease.connection(), key] {
    const UnderWay call(*held);
    return try_header_write(*held, key);
  };
  auto may = co_await lease->threads->images.call_to_end(connections.gate(), std::move(attempt),
                                                         "asking for the right to write to image " + key.text());
  co_return noted(connections, lease.connection(), std::move(may));
}

/// Another cluster does not know the image. That must not count as the end of the image.
result<> is_cluster_of(const Lease& lease, const image::Access& access, const image::Key& key) {
  if (lease->fsid == key.fsid) return {};
  return Error{errc::failed_precondition, cluster_text(access) + " has the fsid " + lease->fsid +
                                              ", but the volume is in the cluster with fsid " + key.fsid +
                                              ": check config.json"};
}

task<result<std::optional<std::string>>> ask_why_full(Connections& connections, Lease lease, std::int64_t pool_id) {
  auto ask = [held = lease.connection(), pool_id]() -> result<std::optional<std::string>> {
    const MonAnswer answer =
        ask_monitors(held->cluster, {{"prefix", "osd pool ls"}, {"detail", "detail"}, {"format", "json"}});
    if (answer.code < 0) return failure("asking the monitors for the pools", answer.code);
    const auto full = find_full_pool(answer.output, pool_id);
    if (!full) return full.error();
    return *full ? std::optional(text_of(**full)) : std::nullopt;
  };
  // Fences have other threads, so a question that the monitors leave unanswered delays none.
  co_return co_await lease->threads->looks.call_to_end(connections.gate(), std::move(ask),
                                                       "asking which pools are full");
}

task<result<std::unique_ptr<image::Image>>> open_and_note(Connections& connections, Lease lease, image::Key key,
                                                          image::OpenOptions options) {
  const auto asked = lease.connection();
  auto answer = co_await OpenImage::open(connections, std::move(lease), std::move(key), std::move(options));
  auto opened = noted(connections, asked, std::move(answer));
  if (!opened) co_return opened.error();
  co_return std::unique_ptr<image::Image>(std::make_unique<RbdImage>(std::move(*opened)));
}

template <class T>
task<> await_and_tell(task<result<T>> work, Promise<T> promise) {
  promise.set(co_await std::move(work));
}

class Clusters final : public image::Clusters {
 public:
  Clusters(executor control, Clock& clock, BlockingPool& files, Config config)
      : connections_(std::make_unique<Connections>(control, clock, files, std::move(config))) {}

  ~Clusters() override {
    if (connections_->quiet()) return;
    // A call that a dead cluster still blocks uses this. Better keep it than free it under that call.
    log::warning("clusters.left_busy", {{"calls", connections_->gate().count()}});
    connections_.release()->abandon();
  }

  task<result<image::Resolved>> resolve(image::Access access, image::Name name, Until until) override;
  task<result<image::Resolved>> locate(image::Access access, image::Reserved reserved, std::string ns,
                                       Until until) override;
  task<result<>> fence_dead(image::Access access, Until until) override;
  task<result<>> inherit(image::Access access, std::string address, Until until) override;
  task<result<image::Header>> header(image::Access access, image::Key key, Until until) override;
  task<result<>> may_write(image::Access access, image::Key key, Until until) override;
  task<result<>> may_serve_anew(image::Access access, image::Key key, bool writes, Until until) override;
  task<result<std::optional<std::string>>> why_full(image::Access access, std::int64_t pool_id, Until until) override;
  std::optional<std::string> fsid_of(const std::vector<std::string>& monitors) const override {
    return connections_->fsid_of(monitors);
  }
  task<result<std::unique_ptr<image::Image>>> open(image::Access access, image::Key key, image::OpenOptions options,
                                                   Until until) override;
  task<result<image::ImageUsers>> users(image::Access access, std::int64_t pool_id, std::string ns,
                                        Until until) override;
  task<result<image::Blocklist>> blocklist(image::Access access, Until until) override;
  task<result<std::vector<result<>>>> block(image::Access access, std::vector<image::BlocklistEntry> entries,
                                            std::chrono::seconds duration, Until until) override {
    return change_blocklist(std::move(access), std::move(entries), duration, until);
  }
  task<result<std::vector<result<>>>> unblock(image::Access access, std::vector<image::BlocklistEntry> entries,
                                              Until until) override {
    return change_blocklist(std::move(access), std::move(entries), std::nullopt, until);
  }
  task<result<image::OwnClients>> end_refused(image::Access access, Until until) override;
  task<result<std::string>> setting(image::Access access, std::string name, Until until) override;
  task<result<>> prepare(image::Access access, std::size_t images, Until until) override {
    return connections_->prepare(std::move(access), images, until);
  }
  void retire(const image::Access& access) override { connections_->retire(access); }
  void retire_all(const image::Access& access) override { connections_->retire_all(access); }
  task<> record_prepared(Until until) override { return connections_->record_prepared(until); }
  std::optional<std::string> cannot_fence(const image::Access& access) const override {
    return connections_->cannot_fence(access);
  }
  task<result<>> reload_predecessor_clients(bool ended) override {
    return connections_->reload_predecessor_clients(ended);
  }
  using image::Clusters::shutdown;
  task<result<>> shutdown(Until until, Until users) override { return connections_->shutdown(until, users); }

 private:
  /// Runs the work to its end. If the waiter leaves, an image that was opened is dropped, which closes it.
  template <class T>
  task<result<T>> run_to_end(task<result<T>> work, Until until, std::string doing, std::string waits_for) {
    Promise<T> promise(connections_->control(), connections_->clock());
    const auto future = promise.future();
    if (!connections_->gate().spawn(await_and_tell(std::move(work), promise)))
      co_return Error{errc::cancelled, doing + ": the agent is leaving"};
    co_return co_await future.get(until, std::move(waits_for));
  }
  /// Does the same for a call on that connection, and notes if its answer did not come in time.
  template <class T>
  task<result<T>> ask(std::shared_ptr<Connection> asked, task<result<T>> work, Until until, std::string doing,
                      std::string waits_for) {
    auto answer = co_await run_to_end(std::move(work), until, std::move(doing), std::move(waits_for));
    if (!answer && answer.error().code == errc::timed_out) connections_->note_answer(*asked, false);
    co_return answer;
  }
  task<result<std::vector<result<>>>> change_blocklist(image::Access access, std::vector<image::BlocklistEntry> entries,
                                                       std::optional<std::chrono::seconds> block_for, Until until);
  std::unique_ptr<Connections> connections_;
};

task<result<image::ImageUsers>> Clusters::users(image::Access access, std::int64_t pool_id, std::string ns,
                                                Until until) {
  auto lease = co_await connections_->lease(access, Connections::Need::any, until);
  if (!lease) co_return lease.error();
  BlockingCalls& looks = (*lease)->threads->looks;
  auto job = [held = lease->connection(), pool_id, ns] { return list_users(*held, pool_id, ns); };
  co_return co_await looks.call(connections_->gate(), std::move(job), until, "looking who has images open");
}

task<result<image::Blocklist>> Clusters::blocklist(image::Access access, Until until) {
  auto lease = co_await connections_->lease(access, Connections::Need::monitors, until);
  if (!lease) co_return lease.error();
  co_return co_await run_to_end(connections_->fencing().blocklist(std::move(*lease)), until, "reading the blocklist",
                                "the blocklist of " + cluster_text(access));
}

task<result<std::string>> Clusters::setting(image::Access access, std::string name, Until until) {
  auto lease = co_await connections_->lease(access, Connections::Need::any, until);
  if (!lease) co_return lease.error();
  BlockingCalls& looks = (*lease)->threads->looks;
  auto job = [held = lease->connection(), name]() -> result<std::string> {
    std::vector<char> text(256);
    int r = -ENAMETOOLONG;
    for (; r == -ENAMETOOLONG && text.size() <= 1 << 16; text.resize(text.size() * 2))
      r = rados_conf_get(held->cluster, name.c_str(), text.data(), text.size());
    if (r == -ENOENT) return std::string();
    if (r < 0) return failure("reading Ceph's option " + name, r);
    return std::string(text.data());
  };
  co_return co_await looks.call(connections_->gate(), std::move(job), until, "reading Ceph's option " + name);
}

task<result<std::optional<std::string>>> Clusters::why_full(image::Access access, std::int64_t pool_id, Until until) {
  auto lease = co_await connections_->lease(access, Connections::Need::monitors, until);
  if (!lease) co_return lease.error();
  co_return co_await run_to_end(ask_why_full(*connections_, std::move(*lease), pool_id), until,
                                "asking which pools are full", "the pools of " + cluster_text(access));
}

task<result<image::OwnClients>> Clusters::end_refused(image::Access access, Until until) {
  auto lease = co_await connections_->lease(std::move(access), Connections::Need::monitors, until);
  if (!lease) co_return lease.error();
  // The work may outlive its caller, whose scope ends with it.
  auto work = connections_->fencing().end_refused(std::move(*lease), {until.deadline});
  co_return co_await run_to_end(std::move(work), until, "ending refused clients",
                                "this agent's refused clients to end");
}

task<result<std::vector<result<>>>> Clusters::change_blocklist(image::Access access,
                                                               std::vector<image::BlocklistEntry> entries,
                                                               std::optional<std::chrono::seconds> block_for,
                                                               Until until) {
  auto lease = co_await connections_->lease(access, Connections::Need::monitors, until);
  if (!lease) co_return lease.error();
  auto work = connections_->fencing().change_blocklist(std::move(*lease), std::move(entries), block_for);
  co_return co_await run_to_end(std::move(work), until, "changing the blocklist",
                                "the blocklist of " + cluster_text(access) + " to be changed");
}

task<result<image::Resolved>> Clusters::resolve(image::Access access, image::Name name, Until until) {
  auto lease = co_await connections_->lease(access, Connections::Need::any, until);
  if (!lease) co_return lease.error();
  const auto asked = lease->connection();
  co_return co_await ask(asked, resolve_and_note(*connections_, std::move(*lease), name), until,
                         "resolving " + name.text(),
                         "image " + name.text() + " in " + cluster_text(access) + " to be found");
}

task<result<image::Resolved>> Clusters::locate(image::Access access, image::Reserved reserved, std::string ns,
                                               Until until) {
  auto lease = co_await connections_->lease(access, Connections::Need::any, until);
  if (!lease) co_return lease.error();
  const std::string what = "the image of volume " + reserved.uuid;
  const auto asked = lease->connection();
  auto work = locate_and_note(*connections_, std::move(*lease), std::move(reserved), std::move(ns));
  co_return co_await ask(asked, std::move(work), until, "looking for " + what,
                         what + " in " + cluster_text(access) + " to be found");
}

task<result<>> Clusters::fence_dead(image::Access access, Until until) {
  auto lease = co_await connections_->lease(access, Connections::Need::any, until);
  if (!lease && lease.error().code == errc::node_fenced) {
    // The fence of the node may end. Until then the cluster's monitors still accept the entries that keep our dead
    // clients out for good.
    auto monitors = co_await connections_->lease(access, Connections::Need::monitors, until);
    if (monitors) static_cast<void>(co_await connections_->fencing().fence(std::move(*monitors), until));
  }
  if (!lease) co_return lease.error();
  const auto asked = lease->connection();
  auto fenced = co_await connections_->fencing().fence(std::move(*lease), until);
  co_return noted(*connections_, asked, std::move(fenced));
}

task<result<>> Clusters::inherit(image::Access access, std::string address, Until until) {
  auto lease = co_await connections_->lease(std::move(access), Connections::Need::any, until);
  if (!lease) co_return lease.error();
  co_return co_await connections_->fencing().inherit(std::move(*lease), std::move(address));
}

task<result<image::Header>> Clusters::header(image::Access access, image::Key key, Until until) {
  auto lease = co_await connections_->lease(access, Connections::Need::any, until);
  if (!lease) co_return lease.error();
  if (auto right = is_cluster_of(*lease, access, key); !right) co_return right.error();
  const std::string what = "the header of image " + key.text();
  const auto asked = lease->connection();
  auto work = look_and_note(*connections_, std::move(*lease), std::move(key));
  co_return co_await ask(asked, std::move(work), until, "looking at " + what, what + " in " + cluster_text(access));
}

task<result<>> Clusters::may_write(image::Access access, image::Key key, Until until) {
  auto lease = co_await connections_->lease(access, Connections::Need::any, until);
  if (!lease) co_return lease.error();
  if (auto right = is_cluster_of(*lease, access, key); !right) co_return right.error();
  const std::string what = "whether user " + access.user + " may write to image " + key.text();
  const auto asked = lease->connection();
  auto work = try_and_note(*connections_, std::move(*lease), std::move(key));
  co_return co_await ask(asked, std::move(work), until, "asking " + what, "the answer " + what);
}

task<result<>> Clusters::may_serve_anew(image::Access access, image::Key key, bool writes, Until until) {
  const std::string what = "a new client of user " + access.user + " to look at image " + key.text();
  auto work = connections_->may_serve_anew(std::move(access), std::move(key), writes);
  co_return co_await run_to_end(std::move(work), until, what, what);
}

task<result<std::unique_ptr<image::Image>>> Clusters::open(image::Access access, image::Key key,
                                                           image::OpenOptions options, Until until) {
  auto lease = co_await connections_->lease(access, Connections::Need::room_for_image, until);
  if (!lease) co_return lease.error();
  if (auto right = is_cluster_of(*lease, access, key); !right) co_return right.error();
  if (auto fenced = connections_->fencing().all_fenced(key.fsid); !fenced) co_return fenced.error();
  if (auto awaited = co_await connections_->fencing().await_map(*lease, until); !awaited) co_return awaited.error();
  if (!options.read_only && key.snap_id == 0)
    if (auto recorded = co_await connections_->record(*lease, until); !recorded) co_return recorded.error();
  // docs/sources.md#full-pools
  const std::string what = "image " + key.text() + " to open (a full pool or a reached quota would prevent it)";
  const auto asked = lease->connection();
  auto work = open_and_note(*connections_, std::move(*lease), std::move(key), std::move(options));
  co_return co_await ask(asked, std::move(work), until, what, what);
}

}  // namespace

std::unique_ptr<image::Clusters> make_clusters(executor control, Clock& clock, BlockingPool& files, Config config) {
  return std::make_unique<Clusters>(control, clock, files, std::move(config));
}

}  // namespace corbd::rbd
