// Wires the rooms together: nothing is decided here.
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>

#include "corbd/cephcsi/affinity.hpp"
#include "corbd/cli/options.hpp"
#include "corbd/core/failpoint.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/process.hpp"
#include "corbd/csi/registrar.hpp"
#include "corbd/csi/server.hpp"
#include "corbd/csi/stage.hpp"
#include "corbd/csi/topology.hpp"
#include "corbd/heal/farewell.hpp"
#include "corbd/heal/healer.hpp"
#include "corbd/heal/kubernetes.hpp"
#include "corbd/host/helpers.hpp"
#include "corbd/host/system.hpp"
#include "corbd/kms/kms.hpp"
#include "corbd/krbd/kernel_client.hpp"
#include "corbd/kube/own_node.hpp"
#include "corbd/nbd/devices.hpp"
#include "corbd/ops/admin.hpp"
#include "corbd/ops/web.hpp"
#include "corbd/rbd/cluster_mapping.hpp"
#include "corbd/rbd/clusters.hpp"
#include "corbd/rbd/config_json.hpp"
#include "corbd/rpc/calls.hpp"
#include "corbd/volume/shell.hpp"
#include "corbd/volume/stash_file.hpp"
#include "version.hpp"

namespace corbd {
namespace {

constexpr std::chrono::seconds kLeaveWithin{2};
constexpr std::chrono::milliseconds kAskSystem{500};
// Sessions and operations come first. Neither calls under way nor mere readers may take their time.
constexpr std::chrono::milliseconds kVolumesLeaveWithin{1600}, kCallsLeaveWithin{200}, kAdminLeavesWithin{100};
constexpr std::chrono::milliseconds kLogEndsWithin{200};
// Each cluster has threads of its own (rbd/lane.hpp).
constexpr std::size_t kFileThreads = 4, kNameThreads = 2;
// Within the pod's terminationGracePeriodSeconds.
constexpr std::chrono::seconds kCommandsEndWithin{90};

int fail(const Error& error) {
  log::error("agent.refuses", {{"code", name(error.code)}, {"error", error.text}});
  return 1;
}

/// Labels given by hand replace those of the Node object.
bool knows_labels(const cli::Run& options) { return !options.topology.empty(); }

result<> check_labels(const cli::Run& options) {
  const auto by_hand = csi::parse_labels(options.topology);
  if (!by_hand) return by_hand.error();
  if (!options.crush_location.empty())
    if (auto checked = cephcsi::check_crush_location(options.crush_location); !checked)
      return with_context("--crush-location", checked.error());
  return csi::check_domain_labels(options.drivername, options.domainlabels);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

result<std::optional<csi::RegistrarConfig>> registrar_config(const cli::Run& options) {
  const csi::RegistrarWish wish{options.registers, options.kubelet_dir, options.drivername, options.endpoint,
                                options.endpoint_on_host};
  std::error_code ignored;
  return csi::registrar_config(wish, std::filesystem::is_directory(options.kubelet_dir + "/plugins_registry", ignored));
}

/// The name that mountinfo uses for what is below it.
std::string real_folder(const std::string& folder) {
  std::error_code failed;
  const auto real = std::filesystem::canonical(folder, failed);
  return failed ? folder : real.string();
}

/// One agent process. Its members may be destroyed from the last to the first.
class Agent {
 public:
  Agent(const cli::Run& options, std::string boot_id, const std::optional<csi::RegistrarConfig>& registrar)
      : options_(options),
        control_(io_.get_executor()),
        clock_(make_real_clock(control_)),
        files_(control_, *clock_, kFileThreads),
        names_(control_, *clock_, kNameThreads),
        gate_(control_, *clock_),
        access_(kube::find_access(variable("KUBERNETES_CONFIG_PATH"), variable)),
        api_(access_ ? std::make_unique<kube::Api>(control_, *clock_, names_, *access_) : nullptr),
        node_(control_, *clock_, api(), options.nodeid),
        helpers_(control_, *clock_, {}),
        mounts_(host::make_mounts(helpers_)),
        filesystems_(host::make_filesystems(helpers_)),
        daemons_(host::make_daemons(helpers_)),
        luks_(host::make_luks(helpers_)),
        kms_(kms::make_kms(files_, options.kms_config_dir)),
        records_(volume::make_record_store(files_, options.state_dir, options.runtime_dir)),
        clusters_(rbd::make_clusters(control_, *clock_, files_, cluster_config(boot_id))),
        devices_(nbd::make_devices(control_, *clock_, {})),
        kernel_(krbd::make_kernel_client(helpers_)),
        shell_(control_, *clock_, ports(), shell_config(boot_id)),
        kubernetes_(
            control_, *clock_, files_, api(), node_, shell_,
            [this](const heal::StageArguments& of) { return csi::stage_wish(of, default_mounter()); },
            kubernetes_config()),
        healer_(control_, *clock_, shell_, heal_config()),
        csi_(control_, *clock_, shell_, csi_config()),
        admin_(control_, *clock_, admin_sources(), admin_config()),
        web_(control_, *clock_, files_, web_config(), web_sources()),
        signals_(io_, SIGTERM, SIGINT) {
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

  rbd::Config cluster_config(const std::string& boot_id) const {
    rbd::Config config;
    config.boot_id = boot_id;
    config.incarnations_dir = options_.state_dir + "/incarnations";
    return config;
  }

  volume::Config shell_config(const std::string& boot_id) const {
    volume::Config config;
    config.boot_id = boot_id;
    config.policy.driver = options_.drivername;
    config.policy.node = options_.nodeid;
    config.policy.fencing = options_.fencing;
    return config;
  }

  heal::Config heal_config() const {
    heal::Config config;
    config.ward.at_once = static_cast<std::size_t>(options_.heal_at_once);
    return config;
  }

  heal::Kubernetes::Config kubernetes_config() {
    auto heal = [this](const std::string& volume_id, std::string why) { healer_.heal(volume_id, std::move(why)); };
    return {options_.drivername,
            options_.nodeid,
            kubelet_dir_,
            options_.unstage_orphans,
            options_.watch_all_attachments,
            heal};
  }

  cephcsi::Mounter default_mounter() const {
    return options_.default_mounter == "rbd" ? cephcsi::Mounter::krbd : cephcsi::Mounter::nbd;
  }

  csi::Config csi_config() {
    csi::Config config;
    config.endpoint = options_.endpoint;
    config.addons_endpoint = options_.addons_endpoint;
    config.drivername = options_.drivername;
    config.nodeid = options_.nodeid;
    config.version = CORBD_VERSION;
    config.default_mounter = default_mounter();
    config.volume_health = options_.volume_health;
    config.topology = [this] { return topology(); };
    config.on_ended = [this](const rpc::Ended& call) { web_.ended(call); };
    return config;
  }

  result<csi::Labels> labels() {
    if (knows_labels(options_)) return csi::parse_labels(options_.topology);
    node_.start();
    return node_.labels();
  }

  result<csi::Labels> topology() {
    std::string wanted = options_.domainlabels;
    if (wanted.empty() && !knows_labels(options_)) return csi::Labels();
    const auto known = labels();
    if (!known) return known.error();
    if (wanted.empty())
      for (const auto& [label, value] : *known) wanted += (wanted.empty() ? "" : ",") + label;
    return csi::topology_of(options_.drivername, wanted, *known);
  }

  ops::AdminConfig admin_config() const {
    ops::AdminConfig config;
    config.runtime_dir = options_.runtime_dir;
    config.version = CORBD_VERSION;
    config.nodeid = options_.nodeid;
    config.driver = options_.drivername;
    return config;
  }

  ops::AdminSources admin_sources() {
    ops::AdminSources sources{shell_, healer_, {}, {}, {}, {}};
    sources.left = [this] { return kubernetes_.left(); };
    sources.timeline = [this](const std::string& id) { return shell_.timeline(id); };
    sources.stuck_helpers = [this] { return helpers_.stuck(); };
    sources.drain = [this](bool on) { shell_.drain(on); };
    sources.draining = [this] { return shell_.draining(); };
    sources.vouched = [this](const std::string& id, const std::string& by, const result<>& done) {
      kubernetes_.vouched(id, by, done);
    };
    return sources;
  }

  ops::WebConfig web_config() const {
    ops::WebConfig config;
    config.address = options_.metricsip;
    config.port = options_.metricsport;
    config.metrics_path = options_.metricspath;
    config.state_dir = options_.state_dir;
    return config;
  }

  ops::WebSources web_sources() {
    auto snapshot = [this] {
      ops::Snapshot now;
      now.version = CORBD_VERSION;
      now.volumes = shell_.status();
      now.ward = &healer_.ward();
      now.devices = devices_->counters();
      now.calls_in_flight = csi_.in_flight();
      return now;
    };
    auto not_ready = [this] {
      std::vector<Error> reasons;
      for (const auto& need : {rpc::answers(options_.endpoint), devices_->ready()})
        if (!need) reasons.push_back(need.error());
      return reasons;
    };
    return {snapshot, not_ready};
  }

  volume::Ports ports() {
    auto find_cluster = [this, &options = options_](const std::string& id) -> result<volume::Cluster> {
      auto entry = rbd::find_cluster(options.config_dir, id);
      if (!entry) return entry.error();
      volume::Cluster cluster{entry->monitors, entry->rados_namespace, "", entry->ignored};
      const auto known = entry->read_affinity && options.crush_location.empty() ? labels() : csi::Labels();
      const auto location = cephcsi::location_for({entry->read_affinity, entry->crush_labels, options.read_affinity,
                                                   cephcsi::label_names(options.crush_labels), options.crush_location},
                                                  known);
      if (location) cluster.crush_location = *location;
      if (!location)
        cluster.ignored.push_back("readAffinity: " + location.error().text +
                                  ", so reads go to the primary OSD: see --crush-location");
      return cluster;
    };
    auto check_path = [this](std::string path, bool must_exist) {
      return files_.run([root = kubelet_dir_, path, must_exist] { return host::check_path(root, path, must_exist); },
                        {}, "looking at a path");
    };
    auto read_stash = [this](std::string at) {
      return files_.run([at] { return volume::read_stash(at); }, {}, "reading image-meta.json");
    };
    auto write_stash = [this](std::string at, cephcsi::Stash stash) {
      return files_.run([at, stash] { return volume::write_stash(at, stash); }, {}, "writing image-meta.json");
    };
    auto drop_stash = [this](std::string at, std::string log) {
      return files_.run([at, log] { return volume::drop_stash(at, log); }, {}, "removing image-meta.json");
    };
    auto real_path = [this](std::string path) { return host::real_path(path, options_.kubelet_dir, kubelet_dir_); };
    auto places = [dir = options_.config_dir](const image::Place& of) { return rbd::mapped_places(dir, of); };
    auto clusters = [dir = options_.config_dir](const std::string& id) { return rbd::mapped_clusters(dir, id); };
    auto attachment = [this](std::string volume_id) { return kubernetes_.attachment(std::move(volume_id)); };
    return {*clusters_, *devices_, *kernel_,     *mounts_,   *filesystems_, *daemons_,   *luks_,
            *kms_,      *records_, find_cluster, check_path, read_stash,    write_stash, drop_stash,
            host::busy, places,    clusters,     attachment, real_path};
  }

  task<> main() {
    shell_.on_trouble(
        [this](const std::string& volume_id, std::string why) { healer_.heal(volume_id, std::move(why)); });
    shell_.on_change([this](const volume::Change& change) {
      admin_.note(change);
      kubernetes_.note(change);
    });
    if (!options_.domainlabels.empty() || options_.read_affinity) static_cast<void>(labels());
    web_.start();
    auto serving = co_await shell_.start();
    if (serving) serving = csi_.start();
    if (serving) serving = admin_.start();
    if (!serving) {
      exit_code_ = fail(serving.error());
      io_.stop();
      co_return;
    }
    log::info("agent.started", {{"endpoint", options_.endpoint}, {"pid", ::getpid()}, {"version", CORBD_VERSION}});
    healer_.start();
    kubernetes_.start();
    if (registrar_) registrar_->start();
    co_await signals_.async_wait(asio::use_awaitable);
    co_await outlast_shutdown();
    co_await leave();
  }

  /// While the node goes down and our devices are in use, we serve them. A second signal ends that.
  task<> outlast_shutdown() {
    // The limit holds even if the bus does not answer.
    const Until until{clock_->now() + 2 * kAskSystem};
    const auto stopping = co_await names_.run([] { return host::system_stopping(kAskSystem); }, until,
                                              "asking whether the node shuts down");
    if (!stopping) log::debug("system.unknown", {{"error", stopping.error().text}});
    if (!stopping || !*stopping) co_return;
    CancelScope hurry;
    signals_.async_wait([&hurry](boost::system::error_code failed, int) {
      if (!failed) hurry.cancel();
    });
    co_await heal::outlast_users(control_, *clock_, shell_, std::chrono::seconds(options_.shutdown_grace_s), hurry);
    signals_.cancel();
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

  /// Answers what was read, and keeps the locks: they are the next start's proof of ownership (docs/architecture.md).
  /// So the images stay open, and the process ends without the destructors that would close them.
  task<> leave() {
    log::info("agent.leaving");
    co_await end_commands();
    const Until until{clock_->now() + kLeaveWithin};
    co_await web_.stop({clock_->now()});
    co_await healer_.stop();
    co_await shell_.stop(until.at_most(clock_->now() + kVolumesLeaveWithin));
    co_await csi_.stop(until.at_most(clock_->now() + kCallsLeaveWithin));
    co_await admin_.stop(until.at_most(clock_->now() + kAdminLeavesWithin));
    co_await node_.stop(until);
    co_await kubernetes_.stop(until);
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

  const cli::Run& options_;
  const std::string kubelet_dir_ = real_folder(options_.kubelet_dir);
  asio::io_context io_{1};
  executor control_;
  std::unique_ptr<Clock> clock_;
  BlockingPool files_;  ///< records, keys, paths: always answered
  BlockingPool names_;  ///< who may not answer for long: name servers, the system bus
  Gate gate_;
  const result<kube::Access> access_;
  std::unique_ptr<kube::Api> api_;
  kube::OwnNode node_;
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
  volume::Shell shell_;
  heal::Kubernetes kubernetes_;
  heal::Healer healer_;
  csi::Server csi_;
  ops::Admin admin_;
  ops::Web web_;
  std::optional<csi::Registrar> registrar_;
  asio::signal_set signals_;
  int exit_code_ = 0;
};

/// The helper process: the work of two rooms.
result<boost::json::object> work(const boost::json::object& request) {
  return krbd::knows(request) ? krbd::work(request) : host::work(request);
}

int run(const cli::Run& options) {
  if (options.verbose) log::set_level(log::Level::debug);
  raise_descriptor_limit();
  // Do this before any thread exists: the flag is per thread and inherited.
  if (auto flusher = become_io_flusher(); !flusher) log::warning("agent.io_flusher", {{"error", flusher.error().text}});
  for (const auto& flag : options.ignored) log::info("agent.flag_ignored", {{"flag", flag}});
  if (options.heal_without_proof)
    return fail(
        {errc::invalid_argument,
         "--heal-without-proof is gone, because it spoke for every volume of the node: start without it, and say "
         "`corbd heal ID --without-proof` for one volume that no other node used"});
  if (auto checked = check_labels(options); !checked) return fail(checked.error());
  const auto registrar = registrar_config(options);
  if (!registrar) return fail(registrar.error());
  for (const auto& spec : options.failpoints)
    if (auto armed = failpoint::arm(spec); !armed) return fail(armed.error());
  if (auto made = make_folder(options.state_dir, 0700); !made) return fail(made.error());
  if (auto made = make_folder(options.runtime_dir, 0700); !made) return fail(made.error());
  if (auto memory = check_tmpfs(options.runtime_dir); !memory) return fail(memory.error());
  const auto lock = lock_folder(options.state_dir);
  if (!lock) return fail(lock.error());
  const auto boot_id = read_boot_id();
  if (!boot_id) return fail(boot_id.error());
  log::start_thread();
  Agent agent(options, *boot_id, *registrar);
  const int code = agent.run();
  log::drain(kLogEndsWithin);
  std::cerr.flush();
  // Destroying the connections of a cluster that does not answer could take for ever.
  ::_exit(code);
}

/// A helper does the same as its agent, by the limit that it inherits.
bool may_dump(const cli::Command& command) {
  if (const auto* agent = std::get_if<cli::Run>(&command)) return agent->allow_core_dumps;
  return std::holds_alternative<cli::Helper>(command) && !core_dumps_forbidden();
}

// Run before the constructors of the libraries, which open files too.
__attribute__((section(".preinit_array"), used)) void (*const before_libraries)() = &fill_standard_streams;

}  // namespace
}  // namespace corbd

int main(int argc, char** argv) {
  using namespace corbd;
  install_signal_handlers();
  const auto command = cli::parse(argc, argv, std::string("corbd ") + CORBD_VERSION + " (" + CORBD_GIT_HASH + ")");
  if (const auto* stopped = std::get_if<cli::Exit>(&command)) return stopped->code;
  if (!may_dump(command)) forbid_core_dumps();
  if (const auto* watch = std::get_if<cli::Liveness>(&command)) return cli::watch_liveness(*watch);
  if (const auto* call = std::get_if<cli::CsiCall>(&command)) return cli::call_csi(*call);
  if (const auto* ask = std::get_if<cli::Admin>(&command)) return cli::call_admin(*ask);
  if (const auto* doctor = std::get_if<cli::Doctor>(&command)) return cli::diagnose(*doctor, CORBD_VERSION);
  if (std::holds_alternative<cli::Helper>(command)) return serve_helper(3, work);
  return run(std::get<cli::Run>(command));
}
