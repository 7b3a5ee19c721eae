#include "mount_options.hpp"

#include "subcommand.hpp"

namespace corbd::cli {
namespace {

CLI::App* add_mounting(CLI::App& app, mounting::Options& into, mounting::Options::What what, const char* name,
                       const char* description) {
  auto* command = app.add_subcommand(name, description);
  command->callback([&into, what] { into.what = what; });
  command->add_option("--endpoint", into.endpoint, "CSI socket of the agent, or of another plugin, unix:///path")
      ->capture_default_str();
  command->add_option("--root", into.root, "Folder of the claims and staging paths; must survive a reboot")
      ->capture_default_str();
  command->add_option("--runtime-dir", into.runtime_dir, "Folder of the lock files; best on tmpfs")
      ->capture_default_str();
  command->footer(exit_codes("0 done, 1 refused or failed, 3 no plugin answers"));
  return command;
}

void add_waiting(CLI::App* command, mounting::Options& into, const char* limit) {
  command->add_flag("--wait", into.wait, "Wait for an agent that does not answer yet");
  command->add_option("--timeout", into.timeout_s, limit)->check(CLI::Range(1, 86400));
}

}  // namespace

void add_mounts(CLI::App& app, mounting::Options& into) {
  using What = mounting::Options::What;
  mounting::MountSpec& spec = into.spec;
  auto* mount = add_mounting(app, into, What::mount, "mount",
                             "Mount an image on this host, without an orchestrator: corbd mount rbd/db /srv/db");
  mount->add_option("image", spec.image,
                    "POOL/IMAGE, IMAGE in the pool rbd, or the ID of a volume that ceph-csi's provisioner made");
  mount->add_option("dir", spec.dir, "Folder to mount it on; with --block, the file to bind the device on");
  mount->add_option("--cluster", spec.cluster, "Cluster ID in config.json [the fsid of --conf]");
  mount->add_option("--conf", spec.conf, "Ceph's configuration file")->capture_default_str();
  mount->add_option("--user", spec.user, "Ceph user, without the prefix client.")->capture_default_str();
  mount->add_option("--keyring", spec.keyring,
                    "File with the user's key [/etc/ceph/ceph.client.USER.keyring, or /etc/ceph/keyring]");
  mount->add_option("--fstype", spec.fstype, "Filesystem type [the one that is there; ext4 for an empty image]");
  mount->add_option("-o,--options", spec.options, "Mount options, comma-separated");
  mount->add_flag("--read-only", spec.read_only, "Mount read-only; other hosts may do so too");
  mount->add_flag("--block", spec.block, "Give the raw block device, without a filesystem");
  mount->add_option("--encrypted", spec.kms, "KMS of an encrypted volume; default: the passphrase opens it");
  mount->add_option("--passphrase-file", spec.passphrase_file,
                    "File with the passphrase of an encrypted volume; every byte counts, a line end too");
  mount->add_option("--attribute", spec.attributes, "Another volume attribute, name=value; may be repeated")
      ->allow_extra_args(false);
  mount->add_flag("--all", into.all, "Mount what --mounts-dir lists, and what was mounted before a reboot");
  mount
      ->add_flag("--refresh-keys", into.refresh,
                 "Mount nothing: read the keyrings again, and move mounted volumes to the keys that are there now")
      ->excludes("--user", "--keyring");
  mount->add_option("--mounts-dir", into.mounts_dir, "Folder of files, one mount each: docs/standalone.md")
      ->capture_default_str();
  mount->add_option("--parallel", into.parallel, "With --all or --refresh-keys, how many mounts at the same time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  mount->add_flag("--write-unit", into.write_unit, "Print a systemd unit for this mount, and mount nothing");
  add_waiting(mount, into, "Seconds to wait; with --all or --refresh-keys, for all of them [300]");

  auto* unmount = add_mounting(app, into, What::unmount, "unmount",
                               "Unmount what corbd mount has mounted there. Files are never removed");
  unmount->add_option("dir", spec.dir, "Where it is mounted");
  unmount->add_flag("--all", into.all,
                    "Unmount all, and keep the claims, so that `corbd mount --all` mounts them again");
  unmount->add_option("--parallel", into.parallel, "With --all, how many at the same time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  add_waiting(unmount, into, "Seconds to wait [300]; with --all, for all of them, also while one is in use [80]");

  auto* expand = add_mounting(app, into, What::expand, "expand",
                              "Give a mounted volume, and its filesystem, the size that its image has");
  expand->add_option("dir", spec.dir, "Where it is mounted")->required();
  add_waiting(expand, into, "Seconds to wait [300]");

  auto* host_volume = add_mounting(app, into, What::host_volume, kHostVolume,
                                   "Answer Nomad as a plugin for dynamic host volumes: docs/standalone.md");
  host_volume->add_option("operation", into.operation, "What Nomad asks for")
      ->required()
      ->check(CLI::IsMember({"fingerprint", "create", "delete"}));
  host_volume->add_option("--rules", into.rules, "File with what Nomad's users may ask for")->capture_default_str();

  auto* list = add_mounting(app, into, What::list, "mounts", "List what corbd mount has mounted, and its state");
  list->add_option("-o,--output", into.output, "Output format")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace corbd::cli
