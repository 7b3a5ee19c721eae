#include "agent.hpp"

#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "cluster_directory.hpp"
#include "config.hpp"
#include "corbd/core/failpoint.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/process.hpp"
#include "corbd/csi/server.hpp"
#include "corbd/csi/stage.hpp"
#include "corbd/fence/fencer.hpp"
#include "corbd/handover/reserve.hpp"
#include "corbd/heal/farewell.hpp"
#include "corbd/heal/healer.hpp"
#include "corbd/heal/kubernetes.hpp"
#include "corbd/host/helpers.hpp"
#include "corbd/host/service.hpp"
#include "corbd/host/system.hpp"
#include "corbd/kms/kms.hpp"
#include "corbd/krbd/kernel_client.hpp"
#include "corbd/nbd/devices.hpp"
#include "corbd/ops/admin.hpp"
#include "corbd/ops/drain.hpp"
#include "corbd/ops/web.hpp"
#include "corbd/rbd/clusters.hpp"
#include "corbd/rpc/calls.hpp"
#include "corbd/volume/shell.hpp"
#include "heir.hpp"
#include "mounters.hpp"
#include "node_files.hpp"
#include "node_labels.hpp"
#include "version.hpp"
#include "vitals.hpp"

namespace corbd {
namespace {

constexpr std::chrono::seconds kLeaveWithin{2};
constexpr std::chrono::milliseconds kAskSystem{500};
constexpr std::chrono::seconds kAnnounceEvery{10};
// Sessions and operations come first. Neither calls under way nor mere readers may take their time.
constexpr std::chrono::milliseconds kVolumesLeaveWithin{1600}, kCallsLeaveWithin{200}, kAdminLeavesWithin{100};
constexpr std::chrono::milliseconds kLogEndsWithin{200};
const failpoint::Places kGivingPlaces({"handover.given"});
// Each cluster has threads of its own (rbd/blocking_calls.hpp).
constexpr std::size_t kFileThreads = 4, kNameThreads = 2;
// When the next agent takes over.
constexpr std::chrono::seconds kClientsEndWithin{2};
// It connects to the clusters and opens images first. Later it answers at once.
constexpr std::chrono::seconds kNextWarmsWithin{120}, kNextAnswersWithin{5};
// If this agent is told to end meanwhile.
constexpr std::chrono::seconds kNextHurriesFor{5};
constexpr std::chrono::milliseconds kSignalArrivesWithin{10};
// It looks every 200 ms.
constexpr std::chrono::seconds kReserveAsksWithin{2};
// Within the pod's terminationGracePeriodSeconds.
constexpr std::chrono::seconds kCommandsEndWithin{90};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

result<kube::Access> api_access(const cli::Run& options) {
  if (options.standalone) return Error{errc::failed_precondition, "--standalone: this host has no API server"};
  return kube::find_access(variable("KUBERNETES_CONFIG_PATH"), variable);
}

/// One agent process. Its members may be destroyed from the last to the first.
class Agent final : private volume::Listener, private volume::Orchestrator {
 public:
  Agent(const cli::Run& options, std::string boot_id, const std::optional<csi::RegistrarConfig>& registrar, Start start,
        Kept kept)
      : options_(options),
        keeper_(std::move(kept.keeper)),
        control_(io_.get_executor()),
        clock_(make_real_clock(control_)),
        files_(control_, *clock_, kFileThreads),
        names_(control_, *clock_, kNameThreads),
        gate_(control_, *clock_),
        access_(api_access(options)),
        api_(access_ ? std::make_unique<kube::Api>(control_, *clock_, names_, *access_) : nullptr),
        node_(control_, *clock_, api(), options.nodeid),
        labels_(options, node_),
        helpers_(control_, *clock_, {}),
        mounts_(host::make_mounts(helpers_)),
        filesystems_(host::make_filesystems(helpers_)),
        daemons_(host::make_daemons(helpers_)),
        luks_(host::make_luks(helpers_)),
        kms_(kms::make_kms(files_, options.kms_config_dir)),
        records_(volume::make_record_store(files_, options.state_dir, options.runtime_dir)),
        clusters_(rbd::make_clusters(control_, *clock_, files_, cluster_config(options, boot_id, bool{start.before}))),
        devices_(nbd::make_devices(control_, *clock_, nbd_config(options, keeper_.get(), std::move(kept.holdings)))),
        kernel_(krbd::make_kernel_client(helpers_)),
        directory_(options, labels_),
        node_files_(options, files_),
        shell_(control_, *clock_, ports(), shell_config(options, boot_id)),
        kubernetes_(control_, *clock_,
                    {.pool = files_, .api = api(), .own = node_, .volumes = shell_, .make_wish = csi::stage_wish},
                    kubernetes_config()),
        mounters_(options, files_, shell_, kubernetes_),
        healer_(control_, *clock_, shell_, heal_config(options)),
        fencer_(*clock_, *clusters_, [this](const std::string& id) { return monitors_of(options_, id); }),
        csi_(control_, *clock_, shell_, csi_config()),
        drain_(control_, *clock_, files_, options.state_dir),
        vitals_(control_, *clock_,
                {.files = files_,
                 .names = names_,
                 .state_dir = options.state_dir,
                 .endpoint = options.endpoint,
                 .api = api(),
                 .devices = *devices_,
                 .drain = drain_,
                 .registrar = registrar_}),
        admin_(control_, *clock_, admin_sources(), admin_config(options)),
        web_(control_, *clock_, web_config(options), web_sources()),
        giver_(control_, *clock_, options.runtime_dir, handover_side(options)),
        heir_(control_, *clock_,
              {.files = files_,
               .state_dir = options.state_dir,
               .shell = shell_,
               .devices = *devices_,
               .clusters = *clusters_,
               .begins = [this] { begun_ = true; }}),
        before_(std::move(start.before)),
        lock_(std::move(start.lock)),
        signals_(io_, SIGTERM, SIGINT),
        called_(std::make_unique<Event>(control_, *clock_)) {
    if (registrar) registrar_.emplace(control_, *clock_, *registrar);
  }

  int run() {
    gate_.spawn(main());
    io_.run();
    return exit_code_;
  }

 private:
  void trouble(const std::string& volume_id, std::string why) override { healer_.heal(volume_id, std::move(why)); }
  task<plan::Attachment> attachment(std::string volume_id) override {
    return kubernetes_.attachment(std::move(volume_id));
  }
  task<plan::HolderNode> holder_node(std::string volume_id, std::string host, plan::Noted noted) override {
    return kubernetes_.holder_node(std::move(volume_id), std::move(host), std::move(noted));
  }
  void notify(const std::string& volume_id, const volume::Notice& notice) override {
    kubernetes_.notify(volume_id, notice);
  }
  void changed(const volume::Change& change) override {
    admin_.note(change);
    kubernetes_.note(change);
  }

  result<kube::Api*> api() const {
    if (!access_) return access_.error();
    return api_.get();
  }

  heal::Kubernetes::Config kubernetes_config() {
    return {.driver = options_.drivername,
            .node = options_.nodeid,
            .kubelet_dir = node_files_.folder(),
            .unstage_orphans = options_.unstage_orphans,
            .watch_all_attachments = options_.watch_all_attachments,
            .listener = this};
  }

  csi::Config csi_config() {
    csi::Config config;
    config.endpoint = options_.endpoint;
    config.addons_endpoint = options_.addons_endpoint;
    config.drivername = options_.drivername;
    config.nodeid = options_.nodeid;
    config.version = CORBD_VERSION;
    config.default_mounter = default_mounter(options_);
    config.mounters = [this](std::string id, cephcsi::Attributes attributes, Until until) {
      return mounters_.of(std::move(id), std::move(attributes), until);
    };
    config.volume_health = options_.volume_health;
    config.controller = !options_.standalone;
    config.fencer = &fencer_;
    config.topology = [this] { return labels_.topology(); };
    config.on_ended = [this](const rpc::Ended& call) { web_.ended(call); };
    return config;
  }

  ops::AdminSources admin_sources() {
    ops::AdminSources sources{shell_, healer_, {}, {}, {}, {}};
    sources.fencer = &fencer_;
    sources.left = [this] { return kubernetes_.left(); };
    sources.timeline = [this](const std::string& id) { return shell_.timeline(id); };
    sources.stuck_helpers = [this] { return helpers_.stuck(); };
    sources.drain = [this](bool on, Until until) { return drain(on, until); };
    sources.facts = [this] { return vitals_.facts(); };
    sources.vouched = [this](const std::string& id, const std::string& by, const result<>& done) {
      kubernetes_.vouched(id, by, done);
    };
    return sources;
  }

  ops::WebSources web_sources() {
    auto snapshot = [this] {
      ops::Snapshot now;
      now.version = CORBD_VERSION;
      now.volumes = shell_.status();
      now.ward = &healer_.ward();
      now.devices = devices_->counters();
      now.volume_metrics = ops::volume_metrics_of(options_.volume_metrics).value_or(ops::VolumeMetrics::counters);
      now.calls_in_flight = csi_.in_flight();
      now.loop_lag = vitals_.worst_lag();
      return now;
    };
    return {snapshot, [this] { return admin_.health(); }, [this] { return ops::judge(vitals_.facts()); }};
  }

  task<result<>> drain(bool on, Until until) {
    auto remembered = co_await drain_.set(on, until);
    if (remembered) shell_.drain(on);
    co_return remembered;
  }

  volume::Ports ports() {
    return {.clusters = *clusters_,
            .devices = *devices_,
            .kernel = *kernel_,
            .mounts = *mounts_,
            .filesystems = *filesystems_,
            .daemons = *daemons_,
            .luks = *luks_,
            .kms = *kms_,
            .records = *records_,
            .directory = directory_,
            .files = node_files_,
            .orchestrator = *this};
  }

  /// Until this agent alone has the state folder, with its records read.
  task<result<>> come_into() {
    begun_ = !before_;
    if (begun_) {
      shell_.tell(*this);
      web_.start();
      co_return co_await shell_.start();
    }
    // The agent before has the port. Healing may not touch a volume that it still serves.
    auto done = co_await heir_.run(std::move(before_));
    lock_ = heir_.take_lock();
    shell_.tell(*this);
    web_.start();
    co_return done;
  }

  void listen_to_signals() {
    signals_.async_wait([this](boost::system::error_code failed, int) {
      if (failed) return;
      told_to_end_ = true;
      if (begun_) {
        clock_->schedule(clock_->now() + kNextHurriesFor, [this] {
          if (!hands_over_ && !calls_reserve_) giver_.leave();
        });
        return called_->set();
      }
      // Nothing was given to this agent yet: the one before goes on.
      log::info("agent.left");
      log::drain(kLogEndsWithin);
      ::_exit(1);
    });
  }

  /// The records are read before the first call is taken, and calls are taken before anything is healed. Nothing waits
  /// for Kubernetes, so it comes after that. kubelet hears of the socket last (docs/architecture.md).
  task<> main() {
    labels_.want();
    vitals_.start();
    listen_to_signals();
    auto serving = co_await come_into();
    co_await drain_.load();
    shell_.drain(drain_.now().has_value());
    if (serving) serving = csi_.start();
    if (serving) serving = admin_.start();
    if (!serving) {
      exit_code_ = refuse(serving.error());
      io_.stop();
      co_return;
    }
    log::info("agent.started", {{"endpoint", options_.endpoint}, {"pid", ::getpid()}, {"version", CORBD_VERSION}});
    co_await tell_ready();
    healer_.start();
    kubernetes_.start();
    if (registrar_) registrar_->start();
    announce();
    if (auto waits = giver_.start([this] { called_->set(); }); !waits)
      log::warning("handover.off", {{"error", waits.error().text}});
    while (!told_to_end_) {
      called_ = std::make_unique<Event>(control_, *clock_);
      gate_.spawn(giver_.run());
      static_cast<void>(co_await called_->wait({}));
      if (const bool may = co_await next_may_take_over(); may) co_await hand_over();
    }
    const bool shutdown = co_await outlast_shutdown();
    if (!shutdown) co_await give_to_reserve();
    giver_.stop();
    co_await leave();
  }

  /// This pod goes, and another one is in reserve: a rollout is undone, or the node was booted in the middle of one.
  task<> give_to_reserve() {
    if (!stays_in_reserve()) co_return;
    called_ = std::make_unique<Event>(control_, *clock_);
    auto job = [folder = options_.runtime_dir, pod = options_.pod] { return handover::call_reserve(folder, pod); };
    const auto waits = co_await files_.run(std::move(job), {}, "calling the pod in reserve");
    if (!waits || !*waits) co_return;
    // It may take its time to get ready: the pod has minutes to end.
    calls_reserve_ = true;
    static_cast<void>(co_await called_->wait({clock_->now() + kReserveAsksWithin}));
    if (const bool may = co_await next_may_take_over(); may) co_await hand_over();
  }

  /// It is ready, and what this agent serves it can serve too: it may have another configuration.
  task<bool> next_may_take_over() {
    if (!giver_.has_next()) co_return false;
    if (const bool ready = co_await giver_.next_answers(kNextWarmsWithin); !ready) co_return false;
    const auto lost = shell_.answering(giver_.cold());
    if (lost.empty()) co_return true;
    log::error("handover.refused", {{"why", "the next agent cannot open the images of volumes that this one serves"},
                                    {"volumes", lost.size()},
                                    {"first", lost.front()},
                                    {"hint", "its log has the reasons: image.not_warm, cluster.not_warm"}});
    giver_.leave();
    co_return false;
  }

  task<> tell_ready() {
    auto job = []() -> result<> {
      host::tell_ready();
      return {};
    };
    static_cast<void>(co_await files_.run(std::move(job), {}, "telling systemd that this agent serves"));
  }

  /// Looks now and then, and tells of what lasts. No volume keeps the node from being ready, so none is looked at.
  void announce() {
    const auto health = ops::judge(vitals_.facts());
    if (const auto notice = announcement_.step(health, clock_->now())) kubernetes_.notify_node(*notice);
    announce_timer_ = clock_->schedule(clock_->now() + kAnnounceEvery, [this] { announce(); });
  }

  /// While the node goes down and our devices are in use, we serve them. A second signal ends that. False: the node
  /// stays, or nobody says.
  task<bool> outlast_shutdown() {
    // The limit holds even if the bus does not answer.
    const Until until{clock_->now() + 2 * kAskSystem};
    const auto stopping = co_await names_.run([] { return host::system_stopping(kAskSystem); }, until,
                                              "asking whether the node shuts down");
    if (!stopping)
      log::warning("system.unknown", {{"error", stopping.error().text},
                                      {"hint",
                                       "if the node shuts down, its devices are served no longer: give the agent "
                                       "the system bus (/run/dbus)"}});
    if (!stopping || !*stopping) co_return false;
    giver_.stop();
    CancelScope hurry;
    signals_.async_wait([&hurry](boost::system::error_code failed, int) {
      if (!failed) hurry.cancel();
    });
    co_await heal::outlast_users(control_, *clock_, shell_, std::chrono::seconds(options_.shutdown_grace_s), hurry);
    signals_.cancel();
    co_return true;
  }

  /// A process cannot end inside a command to the kernel's nbd driver: its thread would keep the lock of the state
  /// directory, and the sockets, which nobody serves then. A resize may wait for the very requests that are served
  /// here.
  task<> end_commands() {
    if (co_await devices_->end_commands({clock_->now()}) == Waited::ready) co_return;
    log::warning("agent.waits", {{"why", "a command to the kernel's nbd driver is under way"},
                                 {"at_most_s", kCommandsEndWithin.count()},
                                 {"effect", "devices are served meanwhile"}});
    if (co_await devices_->end_commands({clock_->now() + kCommandsEndWithin}) == Waited::ready) co_return;
    log::error("agent.leaves_in_command", {{"effect", "the next agent starts when the kernel has ended it"},
                                           {"hint", "`dmesg` tells what nbd waits for"}});
  }

  /// No next agent is heard, nobody reads metrics, and nothing is healed any more.
  task<> begin_nothing() {
    giver_.stop();
    clock_->cancel(announce_timer_);
    co_await end_commands();
    co_await web_.stop({clock_->now()});
    co_await vitals_.stop();
    co_await healer_.stop();
  }

  task<> end_callers(Until until, duration calls_within) {
    co_await csi_.stop(until.at_most(clock_->now() + calls_within));
    co_await admin_.stop(until.at_most(clock_->now() + kAdminLeavesWithin));
    co_await node_.stop(until);
    co_await kubernetes_.stop(until);
  }

  /// The end goes the other way: no reader of the metrics, no new healing, no step of a volume, then whoever still
  /// waits for an answer, and the registration last.
  ///
  /// Answers what was read, and keeps the locks: they are the next start's proof of ownership (docs/architecture.md).
  /// So the images stay open, and the process ends without the destructors that would close them.
  task<> leave() {
    log::info("agent.leaving");
    co_await begin_nothing();
    const Until until{clock_->now() + kLeaveWithin};
    co_await shell_.stop(until.at_most(clock_->now() + kVolumesLeaveWithin));
    co_await end_callers(until, kCallsLeaveWithin);
    // Without a volume no image is open. The clients then end well, and the next start has nobody to fence.
    if (shell_.status().empty())
      if (auto closed = co_await clusters_->shutdown(until); !closed)
        log::warning("clusters.not_closed", {{"error", closed.error().text}});
    // Do this last: kubelet unstages no volume of a driver that it does not know. It forgets this driver only if the
    // driver does not come back.
    if (registrar_) co_await registrar_->stop({clock_->now()});
    log::info("agent.left");
    log::drain(kLogEndsWithin);
    ::_exit(0);
  }

  /// A planned restart: the next agent waits. Callers end first, while devices are served. Then each device stands
  /// still until the next agent serves it, a few at a time.
  task<> hand_over() {
    log::info("agent.hands_over");
    hands_over_ = true;
    static_cast<void>(giver_.say_begins());
    co_await begin_nothing();
    co_await end_callers({clock_->now() + kLeaveWithin}, kLeaveWithin);
    if (registrar_) co_await registrar_->stop({clock_->now()});
    auto given = co_await shell_.settle() ? result<>() : Error{errc::state_write, "a record is still being written"};
    if (given && !co_await giver_.next_answers(kNextAnswersWithin)) given = no_next();
    if (given) {
      co_await tell_successor();
      co_await note_reserve();
      given = co_await giver_.begin(lock_);
    }
    std::size_t links = 0;
    if (given) {
      links = co_await shell_.give([this](volume::Given one) { return give(std::move(one)); });
      if (auto closed = co_await clusters_->shutdown({clock_->now() + kClientsEndWithin}, {clock_->now()}); !closed)
        log::warning("clusters.not_closed", {{"error", closed.error().text}});
      given = giver_.end();
    } else {
      co_await shell_.stop({clock_->now() + kVolumesLeaveWithin});
    }
    if (given)
      log::info("agent.handed_over", {{"links", links}});
    else
      log::error("agent.not_handed_over",
                 {{"error", given.error().text}, {"given", links}, {"effect", "the next start heals every device"}});
    log::drain(kLogEndsWithin);
    const bool to_end = co_await ends_by_signal();
    if (given && !to_end && stays_in_reserve()) begin_anew();
    ::_exit(given ? 0 : 1);
  }

  static result<> no_next() { return Error{errc::unavailable, "the next agent has ended"}; }

  task<bool> give(volume::Given one) {
    const std::string id = one.volume_id;
    const auto given = co_await giver_.give({std::move(one.volume_id), one.device, std::move(one.link)});
    static_cast<void>(failpoint::hit("handover.given"));
    if (!given) log::warning("volume.not_given", {{"volume", id}, {"error", given.error().text}});
    co_return given.has_value();
  }

  /// While devices are served: systemd may take its time.
  task<> tell_successor() {
    auto job = [next = giver_.next_process()]() -> result<> {
      host::tell_successor(next);
      return {};
    };
    static_cast<void>(co_await files_.run(std::move(job), {}, "telling systemd who serves next"));
  }

  /// Whether a signal came while the devices were given. One that comes later ends the process.
  task<bool> ends_by_signal() {
    ::signal(SIGTERM, SIG_DFL);
    static_cast<void>(co_await sleep_until(control_, *clock_, clock_->now() + kSignalArrivesWithin));
    co_return told_to_end_;
  }

  /// kubelet would start its container again, with the same arguments.
  bool stays_in_reserve() const { return options_.handover && !options_.pod.empty(); }

  task<> note_reserve() {
    if (told_to_end_ || !stays_in_reserve()) co_return;
    auto job = [folder = options_.runtime_dir, pod = options_.pod] {
      return handover::note_pod_in_reserve(folder, pod);
    };
    if (const auto noted = co_await files_.run(std::move(job), {}, "noting that this pod is in reserve"); !noted)
      log::warning("handover.reserve_not_noted",
                   {{"error", noted.error().text}, {"effect", "this pod will ask for the devices again"}});
  }

  const cli::Run& options_;
  const std::unique_ptr<keeper::Client> keeper_;
  asio::io_context io_{1};
  executor control_;
  std::unique_ptr<Clock> clock_;
  BlockingPool files_;  ///< records, keys, paths: always answered
  BlockingPool names_;  ///< who may not answer for long: name servers, the system bus
  Gate gate_;
  const result<kube::Access> access_;
  std::unique_ptr<kube::Api> api_;
  kube::OwnNode node_;
  NodeLabels labels_;
  HelperPool helpers_;
  std::unique_ptr<host::Mounts> mounts_;
  std::unique_ptr<host::Filesystems> filesystems_;
  std::unique_ptr<host::Daemons> daemons_;
  std::unique_ptr<host::Luks> luks_;
  std::unique_ptr<kms::Kms> kms_;
  std::unique_ptr<volume::RecordStore> records_;
  std::unique_ptr<image::Clusters> clusters_;
  std::unique_ptr<device::Devices> devices_;
  std::unique_ptr<device::KernelClient> kernel_;
  ClusterDirectory directory_;
  NodeFiles node_files_;
  volume::Shell shell_;
  heal::Kubernetes kubernetes_;
  Mounters mounters_;
  heal::Healer healer_;
  fence::Fencer fencer_;
  csi::Server csi_;
  std::optional<csi::Registrar> registrar_;
  ops::Drain drain_;
  Vitals vitals_;
  ops::Admin admin_;
  ops::Web web_;
  handover::Giver giver_;
  Heir heir_;
  Fd before_, lock_;
  bool begun_ = false;  ///< nobody else serves this node, or will in a moment
  bool hands_over_ = false, calls_reserve_ = false;
  asio::signal_set signals_;
  std::unique_ptr<Event> called_;  ///< by a signal, or by a next agent
  bool told_to_end_ = false;
  ops::Announcement announcement_;
  Clock::TimerId announce_timer_ = 0;
  int exit_code_ = 0;
};

}  // namespace

int refuse(const Error& error) {
  log::error("agent.refuses", {{"code", name(error.code)}, {"error", error.text}});
  return 1;
}

void run_agent(const cli::Run& options, std::string boot_id, const std::optional<csi::RegistrarConfig>& registrar,
               Start start, Kept kept) {
  log::start_thread();
  Agent agent(options, std::move(boot_id), registrar, std::move(start), std::move(kept));
  const int code = agent.run();
  log::drain(kLogEndsWithin);
  // Destroying the connections of a cluster that does not answer could take for ever.
  ::_exit(code);
}

}  // namespace corbd
