#include "fencing_options.hpp"

#include "admin_socket.hpp"

namespace corbd::cli {
namespace {

CLI::App* add_command(CLI::App& app, Fencing& into, Fencing::What what, const char* name, const char* description) {
  auto* command = app.add_subcommand(name, description);
  command->callback([&into, what] { into.what = what; });
  command->add_option("--runtime-dir", into.runtime_dir, kRuntimeDirHelp)->envname("CORBD_RUNTIME_DIR");
  command->add_option("--timeout", into.timeout_s, "Seconds to wait for the answer")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command->add_option("-o,--output", into.output, "Output format")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command->footer("Exit code: 0 done, 1 refused or failed, 3 no agent answers, 64 wrong command line.");
  return command;
}

void add_user(CLI::App* command, Fencing& into, bool required) {
  const std::string when = required ? "" : "; for an image by its name";
  auto* user = command->add_option("--user", into.user, "Ceph user, without the prefix client." + when);
  auto* key = command->add_option("--key-file", into.key_file, "File that holds the user's key" + when);
  auto* cluster = command->add_option("--cluster", into.cluster_id, "Cluster ID in config.json" + when);
  if (!required) return;
  user->required();
  key->required();
  cluster->required();
}

void add_image(CLI::App* command, Fencing& into) {
  command->add_option("image", into.image, "Volume ID, or POOL/[NAMESPACE/]IMAGE")->required();
  add_user(command, into, false);
}

void add_confirm(CLI::App* command, Fencing& into) {
  command->add_flag("--yes-really", into.yes_really, "Confirm; without this flag nothing is changed");
}

void add_blocks(CLI::App* command, Fencing& into) {
  command->add_option("blocks", into.blocks, "Blocks of addresses, as CIDR: 10.0.0.7/32")->required();
  add_user(command, into, true);
  add_confirm(command, into);
}

}  // namespace

void add_fencing(CLI::App& app, Fencing& into) {
  using What = Fencing::What;
  add_image(add_command(app, into, What::holders, "holders",
                        "Show which clients have an image, on which nodes they run, and what is known of those"),
            into);
  auto* take =
      add_command(app, into, What::take, "take",
                  "Cut every other client of an image off from the cluster, so that the image can be staged here");
  add_image(take, into);
  add_confirm(take, into);
  take->add_flag("--force", into.force, "Also clients whose node is ready");

  auto* fence = app.add_subcommand("fence", "Keep every client of some addresses from a cluster, or let them in again");
  fence->require_subcommand(1);
  auto* one = add_command(*fence, into, What::add, "add",
                          "Fence blocks of addresses; without --yes-really, show what that cuts off");
  add_blocks(one, into);
  one->add_option("--duration", into.duration, "How long: seconds, or a number with s, m, h or d [five years]");
  one->add_flag("--force", into.force, "Also blocks that have a client of this very agent");
  add_blocks(add_command(*fence, into, What::remove, "rm", "Take fences away; without --yes-really, show which"), into);
  add_user(add_command(*fence, into, What::list, "ls", "Show a cluster's blocklist"), into, true);
}

}  // namespace corbd::cli
