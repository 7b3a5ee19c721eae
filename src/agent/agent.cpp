#include "agent.hpp"

#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "cluster_directory.hpp"
#include "config.hpp"
#include "corbd/core/failpoint.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/process.hpp"
#include "corbd/csi/server.hpp"
#include "corbd/csi/stage.hpp"
#include "corbd/device/served.hpp"
#include "corbd/fence/fencer.hpp"
#include "corbd/handover/reserve.hpp"
#include "corbd/heal/healer.hpp"
#include "corbd/host/helpers.hpp"
#include "corbd/host/service.hpp"
#include "corbd/kms/kms.hpp"
#include "corbd/krbd/kernel_client.hpp"
#include "corbd/ops/admin.hpp"
#include "corbd/ops/cordon.hpp"
#include "corbd/ops/storage_health.hpp"
#include "corbd/ops/web.hpp"
#include "corbd/orchestrator/kubernetes.hpp"
#include "corbd/rbd/clusters.hpp"
#include "corbd/rpc/calls.hpp"
#include "corbd/volume/shell.hpp"
#include "devices.hpp"
#include "health_monitor.hpp"
#include "kept_listeners.hpp"
#include "kms_kubernetes.hpp"
#include "mounters.hpp"
#include "node_capacity.hpp"
#include "node_files.hpp"
#include "node_labels.hpp"
#include "node_writers.hpp"
#include "runner.hpp"
#include "shutdown.hpp"
#include "takeover.hpp"
#include "version.hpp"

namespace corbd::agent {
namespace {

// Each cluster has threads of its own (rbd/blocking_calls.hpp).
constexpr std::size_t kFileThreads = 4, kNameThreads = 2;
// Healing fences by itself, and with a longer limit.
constexpr std::chrono::seconds kFencesEarly{10};
// The keeper starts its next agent within half a second, or it has closed the sockets.
constexpr std::chrono::seconds kOthersLetGoWithin{3};
constexpr std::chrono::milliseconds kListensAgain{50};

result<kube::Access> api_access(const Options& options) {
  if (options.standalone) return Error{errc::failed_precondition, "--standalone: this host has no API server"};
  return kube::find_access(environment("KUBERNETES_CONFIG_PATH"), environment);
}

/// Reports a mistake at the start. Otherwise it would show only when a volume is staged.
result<> check_kms_config(const std::string& folder) {
  for (const auto& complaint : kms::check_folder(folder))
    log::warning("kms.config", {{"kms", complaint.kms_id},
                                {"error", complaint.text},
                                {"effect", complaint.serves ? "none on its volumes" : "its volumes cannot be staged"}});
  return {};
}

/// One agent process. Its members may be destroyed in reverse order.
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
        api_(access_ ? std::make_unique<kube::Api>(control_, *clock_, names_, files_, *access_) : nullptr),
        node_(control_, *clock_, api(), options.nodeid),
        labels_(options, node_, files_),
        capacity_(files_, static_cast<std::uint32_t>(options.max_volumes)),
        helpers_(control_, *clock_, {}),
        mounts_(host::make_mounts(helpers_)),
        filesystems_(host::make_filesystems(helpers_)),
        daemons_(host::make_daemons(helpers_)),
        luks_(host::make_luks(helpers_)),
        fscrypt_(host::make_fscrypt(helpers_)),
        kms_kubernetes_(api()),
        kms_(kms::make_kms(control_, *clock_, files_, &kms_kubernetes_,
                           {options.kms_config_dir, options.pod_namespace, options.kms_config_map})),
        records_(volume::make_record_store(files_, options.state_dir, options.runtime_dir)),
        clusters_(
            rbd::make_clusters(control_, *clock_, files_, cluster_config(options, boot_id, bool{start.predecessor}))),
        device_ports_(make_devices(control_, *clock_, options, keeper_.get(), std::move(from_keeper.stored))),
        devices_(device_ports_),
        kernel_(krbd::make_kernel_client(helpers_)),
        directory_(options, labels_),
        node_files_(options, files_),
        orchestrator_(control_, *clock_, api(), attachments_config(), csi::stage_credential),
        shell_(control_, *clock_, ports(), shell_config(options, boot_id)),
        kubernetes_(control_, *clock_,
                    {.pool = files_,
                     .api = api(),
                     .own = node_,
                     .orchestrator = orchestrator_,
                     .volumes = shell_,
                     .make_wish = csi::stage_wish},
                    kubernetes_config()),
        mounters_(options, files_, shell_, kubernetes_),
        healer_(control_, *clock_, shell_, heal_config(options)),
        fencer_(
            *clusters_, [this](const std::string& id) { return monitors_of(options_, id); },
            [this](Until until) { return look_for_writers(node_parts(), until); }),
        csi_(control_, *clock_, shell_, csi_config()),
        cordon_(control_, *clock_, files_, options.state_dir),
        lives_(std::move(start.lives)),
        health_(control_, *clock_,
                {.files = files_,
                 .names = names_,
                 .state_dir = options.state_dir,
                 .endpoint = options.endpoint,
                 .api = api(),
                 .devices = devices_,
                 .keeper = keeper_.get(),
                 .pod_file = lives_.get(),
                 .cordon = cordon_,
                 .registrar = registrar_,
                 .node = node_,
                 .metrics = [this] { return web_.port(); }}),
        admin_(control_, *clock_, admin_sources(), admin_config(options)),
        web_(control_, *clock_, files_, web_config(options), web_sources()),
        giver_(control_, *clock_, options.runtime_dir, handover_side(options)),
        takeover_(control_, *clock_, std::move(start.predecessor),
                  {.files = files_,
                   .state_dir = options.state_dir,
                   .shell = shell_,
                   .devices = devices_,
                   .clusters = *clusters_}),
        lock_(std::move(start.lock)),
        shutdown_(control_, *clock_,
                  {.options = options,
                   .files = files_,
                   .shell = shell_,
                   .devices = devices_,
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
                   .listeners = listeners_}),
        runner_(control_, *clock_,
                {.io = io_,
                 .options = options,
                 .files = files_,
                 .names = names_,
                 .shell = shell_,
                 .giver = giver_,
                 .takeover = takeover_,
                 .shutdown = shutdown_,
                 .begin_alone = [this] { return begin_alone(); },
                 .serve = [this] { return serve(); }},
                std::move(start.begins)) {
    if (registrar) registrar_.emplace(control_, *clock_, *registrar);
    if (registrar_ && keeper_)
      registrar_->on_socket(
          [this](const std::string& path, int socket, bool registered) { listeners_.keep(path, socket, registered); });
    for (auto& one : start.listeners) takeover_.inherit_listener(std::move(one.socket), one.registered);
  }

  int run() {
    labels_.want();
    health_.start();
    return runner_.run();
  }

 private:
  result<kube::Api*> api() const {
    if (!access_) return access_.error();
    return api_.get();
  }

  orchestrator::Kubernetes::Config kubernetes_config() {
    return {.driver = options_.drivername,
            .node = options_.nodeid,
            .plugins_dir = node_files_.real_path(options_.kubelet_dir + "/plugins"),
            .unstage_orphans = options_.unstage_orphans,
            .remove_startup_taint = options_.remove_startup_taint};
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
    config.backends = [this] {
      std::vector<csi::BackendCondition> all;
      for (auto& one : ops::storage_conditions(admin_.facts(shell_.overview())))
        all.push_back({one.unreachable, std::move(one.reason), std::move(one.message)});
      return all;
    };
    config.controller = !options_.standalone;
    config.fencer = &fencer_;
    config.topology = [this] { return labels_.topology(); };
    config.max_volumes = [this](Until until) { return max_volumes(until); };
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
    sources.on_override = [this](const std::string& id, const plan::Healed& word, const std::string& by,
                                 const result<>& done) { kubernetes_.report_override(id, word, by, done); };
    return sources;
  }

  NodeParts node_parts() {
    return {.volumes = shell_, .devices = devices_, .kernel = *kernel_, .mounts = *mounts_, .files = files_};
  }

  ops::WebSources web_sources() {
    auto snapshot = [this] {
      ops::Snapshot now;
      now.version = CORBD_VERSION;
      auto seen = shell_.overview();
      now.health = ops::judge(admin_.facts(seen));
      now.volumes = std::move(seen.volumes);
      now.healing = ops::healing_of(healer_.queue(), now.volumes);
      now.devices = devices_.counters();
      now.volume_metrics = ops::volume_metrics_of(options_.volume_metrics).value_or(ops::VolumeMetrics::counters);
      now.calls_in_flight = csi_.in_flight();
      now.loop_lag = health_.worst_lag();
      now.keeper = health_.keeper();
      if (const auto told = runner_.waits_for_next()) now.told_to_end = told->since;
      return now;
    };
    return {snapshot, [this] { return ops::judge(facts()); }};
  }

  ops::NodeFacts facts() const {
    auto facts = health_.facts();
    facts.told_to_end = runner_.waits_for_next();
    facts.startup_taint = kubernetes_.startup_taint();
    facts.capacity = capacity_.now();
    return facts;
  }

  task<std::uint32_t> max_volumes(Until until) {
    auto capacity = co_await capacity_.read(until);
    shell_.set_capacity(capacity);
    co_return capacity.volumes;
  }

  task<result<>> set_cordoned(bool on, Until until) {
    auto remembered = co_await cordon_.set(on, until);
    if (remembered) shell_.set_cordoned(on);
    co_return remembered;
  }

  volume::Ports ports() {
    return {.clusters = *clusters_,
            .devices = devices_,
            .kernel = *kernel_,
            .mounts = *mounts_,
            .filesystems = *filesystems_,
            .daemons = *daemons_,
            .luks = *luks_,
            .fscrypt = *fscrypt_,
            .kms = *kms_,
            .records = *records_,
            .directory = directory_,
            .files = node_files_,
            .orchestrator = orchestrator_};
  }

  void start_listeners_and_web() {
    shell_.set_listeners({&admin_, &kubernetes_, &healer_});
    web_.start();
  }

  task<result<>> begin_alone() {
    start_listeners_and_web();
    auto read = co_await shell_.start();
    // Run this beside the start of the sockets, which keeps the control thread busy for some time.
    if (read) gate_.spawn(shell_.fence_early({clock_->now() + kFencesEarly}));
    co_return read;
  }

  /// Call this only with the lock: an agent that dies before it holds the lock is still in reserve.
  task<result<>> leave_reserve() {
    auto job = [folder = options_.runtime_dir, pod = options_.pod]() -> result<> {
      handover::leave_reserve(folder, pod);
      return {};
    };
    co_return co_await files_.run(std::move(job), {}, "noting that this pod serves");
  }

  /// The records are read before the first call is taken, and calls are taken before anything is healed. Nothing waits
  /// for Kubernetes, so it comes after that. kubelet hears of the socket last (docs/developers/agent.md#start-and-end).
  task<result<>> serve() {
    if (Fd lock = takeover_.take_lock()) {
      lock_ = std::move(lock);
      if (!options_.pod.empty())
        if (auto left = co_await leave_reserve(); !left) co_return left;
      // The predecessor used the port until now. Healing may not touch a volume that the predecessor still served.
      start_listeners_and_web();
    }
    co_await cordon_.load();
    shell_.set_cordoned(cordon_.now().has_value());
    shell_.set_capacity(capacity_.now());
    if (auto serving = co_await listen(); !serving) co_return serving;
    listeners_.keep_all(csi_);
    if (auto serving = admin_.start(); !serving) co_return serving;
    log::info("agent.started", {{"endpoint", options_.endpoint}, {"pid", ::getpid()}, {"version", CORBD_VERSION}});
    co_await tell_ready();
    gate_.spawn(look_at_kms_config());
    healer_.start();
    kubernetes_.start();
    if (registrar_) registrar_->start(takeover_.listeners(), takeover_.registered());
    takeover_.listeners().end_rest();
    health_.start_serving([this](const volume::Notice& notice) { kubernetes_.notify_node(notice); });
    if (auto waits = giver_.start([this] { runner_.wake(); }); !waits)
      log::warning("handover.off", {{"error", waits.error().text}});
    co_return result<>();
  }

  /// This agent has the lock of the state directory. The keeper of a dead agent holds the listening sockets until its
  /// next agent fails to get that lock.
  task<result<>> listen() {
    const auto until = clock_->now() + kOthersLetGoWithin;
    for (bool said = false;;) {
      auto listens = csi_.start(takeover_.listeners());
      if (listens || listens.error().code != errc::in_use || clock_->now() >= until) co_return listens;
      if (!std::exchange(said, true))
        log::warning("agent.waits", {{"cause", listens.error().text}, {"at_most_s", kOthersLetGoWithin.count()}});
      co_await sleep_until(control_, *clock_, clock_->now() + kListensAgain);
    }
  }

  task<> look_at_kms_config() {
    auto job = [folder = options_.kms_config_dir] { return check_kms_config(folder); };
    static_cast<void>(co_await files_.run(std::move(job), {}, "reading the KMS config"));
  }

  task<> tell_ready() {
    auto job = []() -> result<> {
      host::tell_ready();
      return {};
    };
    static_cast<void>(co_await files_.run(std::move(job), {}, "telling systemd that this agent serves"));
  }

  const Options& options_;
  const std::unique_ptr<keeper::Client> keeper_;
  KeptListeners listeners_{keeper_.get()};
  asio::io_context io_{1};
  executor control_;
  std::unique_ptr<Clock> clock_;
  BlockingPool files_;  ///< records, keys, paths, parsing answers: work that always ends
  BlockingPool names_;  ///< calls that may wait long for an answer: name servers, the system bus
  Gate gate_;
  const result<kube::Access> access_;
  std::unique_ptr<kube::Api> api_;
  kube::OwnNode node_;
  NodeLabels labels_;
  NodeCapacity capacity_;
  HelperPool helpers_;
  std::unique_ptr<host::Mounts> mounts_;
  std::unique_ptr<host::Filesystems> filesystems_;
  std::unique_ptr<host::Daemons> daemons_;
  std::unique_ptr<host::Luks> luks_;
  std::unique_ptr<host::Fscrypt> fscrypt_;
  KmsKubernetes kms_kubernetes_;
  std::unique_ptr<kms::Kms> kms_;
  std::unique_ptr<volume::RecordStore> records_;
  std::unique_ptr<image::Clusters> clusters_;
  std::map<device::Kind, std::unique_ptr<device::Devices>> device_ports_;
  device::Served devices_;
  std::unique_ptr<device::KernelClient> kernel_;
  ClusterDirectory directory_;
  NodeFiles node_files_;
  orchestrator::ApiOrchestrator orchestrator_;
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
  Fd lock_;
  Shutdown shutdown_;
  Runner runner_;
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
