#include "corbd/cli/options.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <iostream>
#include <type_traits>

#include "admin_socket.hpp"
#include "cephcsi.hpp"
#include "corbd/cephcsi/serving.hpp"
#include "corbd/core/failpoint.hpp"
#include "describe.hpp"
#include "mount_options.hpp"
#include "subcommand.hpp"
#include "suggest.hpp"

namespace corbd::cli {
namespace {

constexpr const char* kHelper = "helper";

std::string begins_with_slash(const std::string& path) {
  return path.starts_with('/') ? std::string() : path + " does not begin with /";
}

/// Turns a row of the table into an option of CLI11.
struct Add {
  CLI::App& command;
  const Flag& flag;
  Run& run;
  std::vector<std::string>& values;  ///< receives the ignored flags

  std::string name() const { return "--" + std::string(flag.name); }
  void operator()(std::monostate) const {
    command.add_option(name(), values, "A flag of ceph-csi; ignored")->expected(0, 1)->group("");
  }
  void operator()(bool Run::* field) const {
    auto* option = command.add_flag(name(), run.*field, flag.help);
    if (flag.env != nullptr) option->envname(flag.env);
  }
  void operator()(std::optional<bool> Run::* field) const {
    command.add_flag_function(name(), [field, &into = run](std::int64_t given) { into.*field = given > 0; }, flag.help);
  }
  void operator()(int Run::* field) const {
    command.add_option(name(), run.*field, flag.help)->check(CLI::Range(flag.least, flag.most))->capture_default_str();
  }
  template <class Value>
  void operator()(Value Run::* field) const {
    auto* option = command.add_option(name(), run.*field, flag.help);
    // An empty list looks different in each version of CLI11.
    if constexpr (!std::is_same_v<Value, std::vector<std::string>>) option->capture_default_str();
    if (flag.env != nullptr) option->envname(flag.env);
  }
};

CLI::App* add_run(CLI::App& app, Run& run, std::vector<std::string>& values, bool& list) {
  auto* command = app.add_subcommand("run", "Serve the CSI socket and every device of this node");
  for (const Flag& flag : flags()) std::visit(Add{*command, flag, run, values}, flag.field);
  command->get_option("--metricspath")->check(begins_with_slash);
  command->get_option("--default-mounter")
      ->check(CLI::IsMember(std::vector<std::string>(kMounters.begin(), kMounters.end())));
  command->get_option("--volume-metrics")
      ->check(CLI::IsMember(std::vector<std::string>(kVolumeMetrics.begin(), kVolumeMetrics.end())));
  command->add_flag("--list-failpoints", list, "Print the names of all failpoints and exit");
  command->footer(exit_codes("0 ended as it was told to, 1 refused to start, or failed"));
  return command;
}

/// Options that `corbd doctor` has beside the flags of `corbd run`.
struct DoctorFlags {
  std::string admin_endpoint, runtime_dir, default_mounter, root, bundle, output = "text";
  bool before_migration = false, before_rollback = false;
};

/// Adds the forecasts of a change of the node plugin, on a node with either of the two.
void add_before(CLI::App& command, Run& run, DoctorFlags& doctor) {
  auto* migration =
      command.add_flag("--before-migration", doctor.before_migration,
                       "Report instead what happens to each staged volume when this agent replaces ceph-csi here");
  command
      .add_flag("--before-rollback", doctor.before_rollback,
                "Instead: what becomes of each staged volume when ceph-csi replaces this agent here")
      ->excludes(migration);
  command.add_option("--nodeid", run.nodeid, "Name of this node, to ask the API server for volumes")
      ->envname("NODE_ID");
  command
      .add_option("--default-mounter", doctor.default_mounter,
                  "That of the agent [rbd if this program is called cephcsi, otherwise rbd-nbd]")
      ->check(CLI::IsMember(std::vector<std::string>(kMounters.begin(), kMounters.end())));
  command
      .add_option("--kms-config-dir", run.kms_config_dir, "Folder of ceph-csi's config.json for key management systems")
      ->capture_default_str();
  command.add_option("--root", doctor.root,
                     "Where the host's root folder is seen, as /host in a pod of `kubectl debug node` [/]");
}

CLI::App* add_doctor(CLI::App& app, Run& run, DoctorFlags& doctor) {
  auto* command = app.add_subcommand("doctor", "Check this node: what the agent needs, and what stands in its way");
  command->add_option("--endpoint", run.endpoint, "CSI socket, unix:///path")
      ->envname("CSI_ENDPOINT")
      ->capture_default_str();
  command->add_option("--admin-endpoint", doctor.admin_endpoint,
                      "Admin socket, unix:///path [<runtime-dir>/admin.sock]");
  command->add_option("--drivername", run.drivername, "CSI driver name")->envname("DRIVER_NAME")->capture_default_str();
  command->add_option("--pluginpath", run.pluginpath, "Folder of kubelet's plugins")
      ->envname("PLUGIN_PATH")
      ->capture_default_str();
  command->add_option("--kubelet-dir", run.kubelet_dir, "kubelet's folder")
      ->envname("KUBELET_DIR")
      ->capture_default_str();
  command->add_option("--state-dir", run.state_dir, "Folder of the records [<pluginpath>/<drivername>/corbd]");
  command->add_option("--runtime-dir", doctor.runtime_dir, kRuntimeDirHelp)->envname("CORBD_RUNTIME_DIR");
  command->add_option("--config-dir", run.config_dir, "Folder of ceph-csi's config.json")->capture_default_str();
  command->add_flag("--standalone", run.standalone,
                    "Check a host without an orchestrator, as with `corbd run --standalone`");
  command->add_option("--ceph-conf", run.ceph_conf, "Ceph's configuration [with --standalone /etc/ceph/ceph.conf]");
  add_before(*command, run, doctor);
  auto* bundle = command->add_option("--bundle", doctor.bundle,
                                     "Also pack what a remote engineer needs, without secrets, into this .tar.gz");
  for (const char* instead : {"--before-migration", "--before-rollback"})
    bundle->excludes(command->get_option(instead));
  command->add_option("-o,--output", doctor.output, "Output format: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command->footer(exit_codes(
      "0 all is well, 1 a warning, 2 a failure (with --before-migration or --before-rollback: 1 I/O waits for a while, "
      "or something is not known; 2 I/O waits until you act, or data could be lost)"));
  return command;
}

/// Used by scripts/package, which reads standard output.
void add_describe(CLI::App& app, const std::string& version) {
  auto* command = app.add_subcommand("describe", "Print the bash completion, or a man page")->group("");
  command->add_subcommand("bash")->callback([&app] { std::cout << bash_completion(app); });
  command->add_subcommand("pages")->callback([&app] {
    for (const auto& page : man_pages(app)) std::cout << page << "\n";
  });
  auto* page = command->add_subcommand("page")->require_option(1);
  auto* name = page->add_option("name");
  page->callback([&app, name, version] { std::cout << man_page(app, name->as<std::string>(), version); });
  command->require_subcommand(1);
}

Command complete(const DoctorFlags& given, const Run& run, bool is_cephcsi) {
  const std::string runtime_dir = agents_folder(given.runtime_dir);
  const std::string admin_endpoint =
      given.admin_endpoint.empty() ? "unix://" + admin_socket(runtime_dir) : given.admin_endpoint;
  const bool by_kernel = given.default_mounter.empty() ? is_cephcsi : given.default_mounter == kMounters[0];
  const auto mounter = by_kernel ? cephcsi::Mounter::krbd : cephcsi::Mounter::nbd;
  const doctor::Options options{.endpoint = run.endpoint,
                                .admin_endpoint = admin_endpoint,
                                .kubelet_dir = run.kubelet_dir,
                                .state_dir = run.state_dir,
                                .runtime_dir = runtime_dir,
                                .config_dir = run.config_dir,
                                .kms_config_dir = run.kms_config_dir,
                                .ceph_conf = run.ceph_conf,
                                .driver = run.drivername,
                                .standalone = run.standalone,
                                .default_mounter = mounter,
                                .bundle = given.bundle,
                                .output = given.output};
  if (given.before_migration || given.before_rollback)
    return migration::Options{options, run.nodeid, given.root, given.before_rollback};
  return options;
}

/// Prints help, or the mistake, and returns the exit code.
int stop(const CLI::App& app, std::span<const std::string> words, const CLI::ParseError& stopped) {
  if (stopped.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(stopped);
  const std::string unknown = unknown_word(app, words);
  unknown.empty() ? static_cast<void>(app.exit(stopped)) : static_cast<void>(std::cerr << unknown << "\n");
  return kWrongUsage;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// Replaces the name under which this program was called. Nomad calls a link to it in its folder of plugins, whose name
/// stands for a subcommand. Its helpers have the link's name too.
std::string take_link_name(std::vector<std::string>& words) {
  if (words.empty()) return "";
  const std::string name = std::filesystem::path(words[0]).filename().string();
  const bool is_helper = words.size() > 1 && words[1] == kHelper;
  if (name == "corbd-" + std::string(kHostVolume) && !is_helper) words.insert(words.begin() + 1, kHostVolume);
  return name;
}

/// Sets the defaults of --standalone. Values that were given stay.
void complete_standalone(Run& run) {
  const Run plain;
  if (run.nodeid.empty()) run.nodeid = host_name();
  if (run.endpoint == plain.endpoint) run.endpoint = "unix://" + run.runtime_dir + "/csi.sock";
  if (run.state_dir.empty()) run.state_dir = "/var/lib/corbd/agent";
  if (run.ceph_conf.empty()) run.ceph_conf = "/etc/ceph/ceph.conf";
  // A target may be in any folder of the host.
  if (run.kubelet_dir == plain.kubelet_dir) run.kubelet_dir = "/";
  run.registers = false;
}

}  // namespace

void complete(Run& run) {
  if (run.standalone) complete_standalone(run);
  if (run.state_dir.empty()) run.state_dir = run.pluginpath + "/" + run.drivername + "/corbd";
}

Command parse(int argc, char** argv, const std::string& version) {
  std::vector<std::string> words(argv, argv + argc);
  const std::string name = take_link_name(words);
  const bool is_cephcsi = name == "cephcsi";
  if (is_cephcsi && (argc == 1 || words[1].starts_with('-')))
    return parse_cephcsi(std::span(words).subspan(1), version);
  CLI::App app{"corbd: Ceph RBD volumes over the kernel's NBD driver, for Kubernetes and Nomad nodes"};
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  app.footer("Exit code: 64 for an invalid command line; --help of each command lists the others.");
  Run run;
  Chosen chosen;
  DoctorFlags doctor;
  mounting::Options mounts;
  std::vector<std::string> values;
  bool list = false;
  const auto* run_command = add_run(app, run, values, list);
  for (const auto add_question : kQuestions) add_question(app, chosen);
  add_mounts(app, mounts);
  add_csi(app, chosen);
  add_version(app, chosen);
  const auto* doctor_command = add_doctor(app, run, doctor);
  const auto* helper_command = app.add_subcommand(kHelper, "The agent's own child process")->group("");
  add_describe(app, version);
  try {
    std::vector<char*> pointers;
    for (auto& word : words) pointers.push_back(word.data());
    app.parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const CLI::ParseError& stopped) {
    return Exit{stop(app, std::span(words).subspan(1), stopped)};
  }
  if (app.got_subcommand("describe")) return Exit{0};
  if (*helper_command) return Helper{};
  if (chosen) return Call{[chosen] { return chosen->run(); }};
  if (mounts.what != mounting::Options::What::none) return mounts;
  if (*run_command && list) {
    for (const auto& point : failpoint::names()) std::cout << point << "\n";
    return Exit{0};
  }
  if (*doctor_command && !doctor.runtime_dir.empty()) run.runtime_dir = doctor.runtime_dir;
  complete(run);
  if (*doctor_command) return complete(doctor, run, is_cephcsi);
  if (run.nodeid.empty()) {
    std::cerr << "corbd run: the node's name is missing: give --nodeid or set NODE_ID\n";
    return Exit{kWrongUsage};
  }
  for (const Flag& flag : flags())
    if (std::holds_alternative<std::monostate>(flag.field) && run_command->count("--" + std::string(flag.name)) > 0)
      run.ignored.emplace_back(flag.name);
  return run;
}

}  // namespace corbd::cli
