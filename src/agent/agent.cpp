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
#include "corbd/host/helpers.hpp"
#include "corbd/host/service.hpp"
#include "corbd/host/system.hpp"
#include "corbd/kms/kms.hpp"
#include "corbd/krbd/kernel_client.hpp"
#include "corbd/lifecycle/leaving.hpp"
#include "corbd/nbd/devices.hpp"
#include "corbd/ops/admin.hpp"
#include "corbd/ops/cordon.hpp"
#include "corbd/ops/web.hpp"
#include "corbd/orchestrator/kubernetes.hpp"
#include "corbd/rbd/clusters.hpp"
#include "corbd/rpc/calls.hpp"
#include "corbd/volume/shell.hpp"
#include "health_monitor.hpp"
#include "mounters.hpp"
#include "node_files.hpp"
#include "node_labels.hpp"
#include "shutdown.hpp"
#include "takeover.hpp"
#include "version.hpp"

namespace corbd::agent {
namespace {

constexpr std::chrono::milliseconds kAskSystem{500};
// While it serves on although it was told to end: the node may shut down later.
constexpr std::chrono::seconds kAskSystemAgain{5};
constexpr std::chrono::milliseconds kDecideAgain{500};
// Each cluster has threads of its own (rbd/blocking_calls.hpp).
constexpr std::size_t kFileThreads = 4, kNameThreads = 2;
// Healing asks for itself, and longer.
constexpr std::chrono::seconds kFencesEarly{10};
// The next agent connects to the clusters and opens images first.
constexpr std::chrono::seconds kNextPreopensWithin{120};
// If this agent is told to end meanwhile, and may not wait for longer.
constexpr std::chrono::seconds kNextHurriesFor{5};

result<kube::Access> api_access(const Options& options) {
  if (options.standalone) return Error{errc::failed_precondition, "--standalone: this host has no API server"};
  return kube::find_access(environment("KUBERNETES_CONFIG_PATH"), environment);
}

/// One agent process. Its members may be destroyed from the last to the first.
class Agent final {
 public:
  Agent(const Options& options, std::string boot_id, const std::optional<csi::RegistrarConfig>& registrar, Start start,
        FromKeeper from_keeper)
      : options_(options),
        keeper_(std::move(from_keeper.keeper)),
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
        clusters_(
            rbd::make_clusters(control_, *clock_, files_, cluster_config(options, boot_id, bool{start.predecessor}))),
        devices_(
            nbd::make_devices(control_, *clock_, nbd_config(options, keeper_.get(), std::move(from_keeper.stored)))),
        kernel_(krbd::make_kernel_client(helpers_)),
        directory_(options, labels_),
        node_files_(options, files_),
        evidence_(control_, *clock_, api(), attachments_config()),
        shell_(control_, *clock_, ports(), shell_config(options, boot_id)),
        kubernetes_(control_, *clock_,
                    {.pool = files_,
                     .api = api(),
                     .own = node_,
                     .evidence = evidence_,
                     .volumes = shell_,
                     .make_wish = csi::stage_wish},
                    kubernetes_config()),
        mounters_(options, files_, shell_, kubernetes_),
        healer_(control_, *clock_, shell_, heal_config(options)),
        fencer_(*clusters_, [this](const std::string& id) { return monitors_of(options_, id); }),
        csi_(control_, *clock_, shell_, csi_config()),
        cordon_(control_, *clock_, files_, options.state_dir),
        lives_(std::move(start.lives)),
        health_(control_, *clock_,
                {.files = files_,
                 .names = names_,
                 .state_dir = options.state_dir,
                 .endpoint = options.endpoint,
                 .api = api(),
                 .devices = *devices_,
                 .keeper = keeper_.get(),
                 .pod_file = lives_.get(),
                 .cordon = cordon_,
                 .registrar = registrar_}),
        admin_(control_, *clock_, admin_sources(), admin_config(options)),
        web_(control_, *clock_, web_config(options), web_sources()),
        giver_(control_, *clock_, options.runtime_dir, handover_side(options)),
        takeover_(control_, *clock_,
                  {.files = files_,
                   .state_dir = options.state_dir,
                   .shell = shell_,
                   .devices = *devices_,
                   .clusters = *clusters_,
                   .starts_again_within = options.keeper ? keeper::kStartsAgainWithin : duration{},
                   .begins = [this] { owns_state_ = true; }}),
        predecessor_(std::move(start.predecessor)),
        lock_(std::move(start.lock)),
        shutdown_(control_, *clock_,
                  {.options = options,
                   .files = files_,
                   .shell = shell_,
                   .devices = *devices_,
                   .clusters = *clusters_,
                   .healer = healer_,
                   .kubernetes = kubernetes_,
                   .node = node_,
                   .csi = csi_,
                   .registrar = registrar_,
                   .admin = admin_,
                   .web = web_,
                   .health = health_,
                   .giver = giver_,
                   .lock = lock_,
                   .told_to_end = told_to_end_}),
        signals_(io_, SIGTERM, SIGINT),
        told_{.signals = 0, .grace = leave_grace()},
        called_(std::make_unique<Event>(control_, *clock_)) {
    if (registrar) registrar_.emplace(control_, *clock_, *registrar);
  }

  int run() {
    gate_.spawn(main());
    io_.run();
    return exit_code_;
  }

 private:
  result<kube::Api*> api() const {
    if (!access_) return access_.error();
    return api_.get();
  }

  orchestrator::Kubernetes::Config kubernetes_config() {
    return {.driver = options_.drivername,
            .node = options_.nodeid,
            .kubelet_dir = node_files_.folder(),
            .unstage_orphans = options_.unstage_orphans};
  }

  orchestrator::Attachments::Config attachments_config() {
    return {.driver = options_.drivername,
            .node = options_.nodeid,
            .watch_all = options_.watch_all_attachments,
            .changed = [this](const std::string& id) { healer_.report_failure(id, "its VolumeAttachment changed"); }};
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
    sources.set_cordoned = [this](bool on, Until until) { return set_cordoned(on, until); };
    sources.facts = [this] { return facts(); };
    sources.on_override = [this](const std::string& id, const std::string& by, const result<>& done) {
      kubernetes_.report_override(id, by, done);
    };
    return sources;
  }

  ops::WebSources web_sources() {
    auto snapshot = [this] {
      ops::Snapshot now;
      now.version = CORBD_VERSION;
      now.volumes = shell_.status();
      now.heal_queue = &healer_.queue();
      now.devices = devices_->counters();
      now.volume_metrics = ops::volume_metrics_of(options_.volume_metrics).value_or(ops::VolumeMetrics::counters);
      now.calls_in_flight = csi_.in_flight();
      now.loop_lag = health_.worst_lag();
      now.keeper = health_.keeper();
      if (waits_for_next()) now.told_to_end = told_since();
      return now;
    };
    return {snapshot, [this] { return admin_.health(); }, [this] { return ops::judge(facts()); }};
  }

  bool waits_for_next() const { return told_.grace > duration{} && told_.node_stops && !*told_.node_stops; }
  duration told_since() const { return told_.signals > 0 ? clock_->now() - told_at_ : duration{}; }

  ops::NodeFacts facts() const {
    auto facts = health_.facts();
    if (waits_for_next()) facts.told_to_end = ops::ToldFacts{told_since(), told_.grace};
    return facts;
  }

  task<result<>> set_cordoned(bool on, Until until) {
    auto remembered = co_await cordon_.set(on, until);
    if (remembered) shell_.set_cordoned(on);
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
            .orchestrator = evidence_};
  }

  /// Until this agent alone has the state folder, with its records read.
  task<result<>> acquire_state() {
    owns_state_ = !predecessor_;
    if (owns_state_) {
      shell_.tell({&admin_, &kubernetes_, &healer_});
      web_.start();
      auto read = co_await shell_.start();
      // Beside the start of the sockets, which takes the control thread some time.
      if (read) gate_.spawn(shell_.fence_early({clock_->now() + kFencesEarly}));
      co_return read;
    }
    // The agent before has the port. Healing may not touch a volume that it still serves.
    auto done = co_await takeover_.run(std::move(predecessor_));
    lock_ = takeover_.take_lock();
    if (done && !options_.pod.empty()) done = co_await leave_reserve();
    shell_.tell({&admin_, &kubernetes_, &healer_});
    web_.start();
    co_return done;
  }

  /// Not before it has the lock: one that dies until then is in reserve still.
  task<result<>> leave_reserve() {
    auto job = [folder = options_.runtime_dir, pod = options_.pod]() -> result<> {
      handover::leave_reserve(folder, pod);
      return {};
    };
    co_return co_await files_.run(std::move(job), {}, "noting that this pod serves");
  }

  /// Only a DaemonSet's controller that puts a second pod on the node would have the next agent come meanwhile.
  duration leave_grace() const {
    return shutdown_.stays_in_reserve() ? std::chrono::seconds(options_.leave_grace_s) : std::chrono::seconds(0);
  }

  void listen_to_signals() {
    signals_.async_wait([this](boost::system::error_code failed, int) {
      if (failed) return;
      hear_signal();
      listen_to_signals();
    });
  }

  void hear_signal() {
    if (!owns_state_) {
      // Nothing was given to this agent yet: the one before goes on.
      log::info("agent.left");
      log::drain(kLogEndsWithin);
      ::_exit(1);
    }
    if (!std::exchange(told_to_end_, true)) {
      told_at_ = clock_->now();
      gate_.spawn(watch_node());
    }
    const bool patient = ++told_.signals == 1;
    clock_->schedule(clock_->now() + std::max<duration>(kNextHurriesFor, patient ? told_.grace : duration{}),
                     [this] { drop_next(); });
    if (!patient) hurry_.cancel();
    called_->set();
  }

  void drop_next() {
    if (!shutdown_.hands_over()) giver_.leave();
  }

  /// The records are read before the first call is taken, and calls are taken before anything is healed. Nothing waits
  /// for Kubernetes, so it comes after that. kubelet hears of the socket last (docs/agent.md#start-and-end).
  task<> main() {
    labels_.want();
    health_.start();
    listen_to_signals();
    auto serving = co_await acquire_state();
    co_await cordon_.load();
    shell_.set_cordoned(cordon_.now().has_value());
    if (serving) serving = csi_.start(takeover_.listeners());
    if (serving) serving = admin_.start();
    if (!serving) {
      exit_code_ = refuse(serving.error());
      // What is served by now, after a handover for example.
      co_await shell_.stop({clock_->now()});
      io_.stop();
      co_return;
    }
    log::info("agent.started", {{"endpoint", options_.endpoint}, {"pid", ::getpid()}, {"version", CORBD_VERSION}});
    co_await tell_ready();
    healer_.start();
    kubernetes_.start();
    if (registrar_) registrar_->start(takeover_.listeners(), takeover_.registered());
    takeover_.listeners().end_rest();
    health_.announce([this](const volume::Notice& notice) { kubernetes_.notify_node(notice); });
    if (auto waits = giver_.start([this] { called_->set(); }); !waits)
      log::warning("handover.off", {{"error", waits.error().text}});
    while (!told_to_end_) {
      listen_to_next();
      static_cast<void>(co_await called_->wait({}));
      co_await give_to_next();
    }
    co_await serve_on();
    giver_.stop();
    co_await shutdown_.leave();
  }

  /// called_ is set from now on.
  void listen_to_next() {
    called_ = std::make_unique<Event>(control_, *clock_);
    if (!std::exchange(listens_, true)) gate_.spawn(hear_next());
  }

  task<> hear_next() {
    co_await giver_.run();
    listens_ = false;
    // It may have asked while another event was awaited.
    if (giver_.has_next()) called_->set();
  }

  task<> give_to_next() {
    if (const bool may = co_await next_may_take_over(); may) co_await shutdown_.hand_over();
  }

  /// This agent was told to end.
  task<> serve_on() {
    for (;;) {
      listen_to_next();
      told_.next_asks = giver_.has_next();
      told_.in_use = heal::served_in_use(shell_).size();
      told_.since = told_since();
      if (const bool calls = co_await call_reserve(); calls) told_.called = true;
      switch (lifecycle::decide(told_)) {
        case lifecycle::Leaving::leave:
          co_return;
        case lifecycle::Leaving::see_users_out:
          co_return co_await see_users_out();
        case lifecycle::Leaving::hand_over:
          co_await give_to_next();
          break;
        case lifecycle::Leaving::wait:
          if (told_.node_stops && !std::exchange(says_it_waits_, true))
            log::info("agent.serves_on", {{"until", "the next agent asks for its devices"},
                                          {"in_use", told_.in_use},
                                          {"at_most_s", options_.leave_grace_s}});
          static_cast<void>(co_await called_->wait({clock_->now() + kDecideAgain}));
      }
    }
  }

  /// This pod goes, and another one is in reserve: a rollout is undone, or the node was booted in the middle of one.
  /// False: none waits there, or one asks already. The call counts once, and the pod may need some time to get ready.
  task<bool> call_reserve() {
    if (!waits_for_next() || told_.next_asks) co_return false;
    auto job = [folder = options_.runtime_dir, pod = options_.pod] { return handover::call_reserve(folder, pod); };
    const auto waits = co_await files_.run(std::move(job), {}, "calling the pod in reserve");
    co_return waits && *waits;
  }

  /// It is ready, and what this agent serves it can serve too: it may have another configuration.
  task<bool> next_may_take_over() {
    if (!giver_.has_next()) co_return false;
    if (const bool ready = co_await giver_.next_answers(kNextPreopensWithin); !ready) co_return false;
    const auto lost = shell_.answering(giver_.unopened_images());
    if (lost.empty()) co_return true;
    log::error("handover.refused",
               {{"why", "the next agent cannot open the images of volumes that this one serves"},
                {"volumes", lost.size()},
                {"first", lost.front()},
                {"hint", "its log has the reasons: image.not_preopened, cluster.not_connected_ahead"}});
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

  /// Until the node shuts down: its pods may be ended before this is known, and long before it begins.
  task<> watch_node() {
    for (bool told = false;;) {
      // The limit holds even if the bus does not answer.
      const Until until{clock_->now() + 2 * kAskSystem};
      const auto stopping = co_await names_.run([] { return host::system_stopping(kAskSystem); }, until,
                                                "asking whether the node shuts down");
      if (!stopping && !std::exchange(told, true))
        log::warning("system.unknown", {{"error", stopping.error().text},
                                        {"hint",
                                         "if the node shuts down, its devices are served no longer: give the agent "
                                         "the system bus (/run/dbus)"}});
      told_.node_stops = stopping && *stopping;
      if (*told_.node_stops) drop_next();
      called_->set();
      if (*told_.node_stops) co_return;
      static_cast<void>(co_await sleep_until(control_, *clock_, clock_->now() + kAskSystemAgain));
    }
  }

  /// While the node goes down and our devices are in use, we serve them. A second signal ends that.
  task<> see_users_out() {
    giver_.stop();
    co_await heal::outlast_users(control_, *clock_, shell_, std::chrono::seconds(options_.shutdown_grace_s), hurry_);
  }

  const Options& options_;
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
  orchestrator::Evidence evidence_;
  volume::Shell shell_;
  orchestrator::Kubernetes kubernetes_;
  Mounters mounters_;
  heal::Healer healer_;
  fence::Fencer fencer_;
  csi::Server csi_;
  std::optional<csi::Registrar> registrar_;
  ops::Cordon cordon_;
  const Fd lives_;
  HealthMonitor health_;
  ops::Admin admin_;
  ops::Web web_;
  handover::Giver giver_;
  Takeover takeover_;
  Fd predecessor_, lock_;
  Shutdown shutdown_;
  bool owns_state_ = false;  ///< nobody else serves this node, or will in a moment
  bool listens_ = false, says_it_waits_ = false;
  asio::signal_set signals_;
  lifecycle::Told told_;
  time_point told_at_{};
  CancelScope hurry_;              ///< cancelled by a second signal
  std::unique_ptr<Event> called_;  ///< by a signal, or by a next agent
  bool told_to_end_ = false;
  int exit_code_ = 0;
};

}  // namespace

int refuse(const Error& error) {
  log::error("agent.refuses", {{"code", name(error.code)}, {"error", error.text}});
  return 1;
}

void run_agent(const Options& options, std::string boot_id, const std::optional<csi::RegistrarConfig>& registrar,
               Start start, FromKeeper from_keeper) {
  log::start_thread();
  Agent agent(options, std::move(boot_id), registrar, std::move(start), std::move(from_keeper));
  const int code = agent.run();
  log::drain(kLogEndsWithin);
  // Destroying the connections of a cluster that does not answer could take for ever.
  ::_exit(code);
}

}  // namespace corbd::agent
