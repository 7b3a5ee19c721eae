#include "admin_options.hpp"

namespace corbd::cli {
namespace {

CLI::App* add(CLI::App& app, Admin& into, Admin::What what, const char* name, const char* description) {
  auto* command = app.add_subcommand(name, description);
  command->callback([&into, what] { into.what = what; });
  command->add_option("--runtime-dir", into.runtime_dir, "As the agent's: its socket is admin.sock in there")
      ->capture_default_str();
  command->footer("Exit code: 0 done, 1 refused or failed, 3 no agent answers.");
  return command;
}

void add_output(CLI::App* command, Admin& into, std::vector<std::string> forms) {
  const std::string first = forms.front();
  command->add_option("-o,--output", into.output, "How it is shown [" + first + "]")
      ->check(CLI::IsMember(std::move(forms)));
}

void add_timeout(CLI::App* command, Admin& into, const char* fallback) {
  command->add_option("--timeout", into.timeout_s, std::string("Seconds [") + fallback + "]")
      ->check(CLI::Range(1, 86400));
}

}  // namespace

void add_admin(CLI::App& app, Admin& into) {
  using What = Admin::What;
  auto* status = add(app, into, What::status, "status", "How this node's agent, its volumes and their clusters are");
  status->footer(
      "Exit code: 0 OK, 1 warning (it may pass by itself), 2 critical (requests wait or fail until somebody acts), 3 "
      "no agent answers.");
  add_output(status, into, {"text", "json"});
  add_timeout(status, into, "10");

  auto* volumes = add(app, into, What::volumes, "volumes", "List the volumes of this node");
  add_output(volumes, into, {"table", "wide", "json"});
  add_timeout(volumes, into, "10");

  auto* volume = add(app, into, What::volume, "volume", "One volume and the last changes of its state");
  volume->add_option("id", into.volume_id, "Volume id")->required();
  add_output(volume, into, {"text", "json"});
  add_timeout(volume, into, "10");

  auto* heal = add(app, into, What::heal, "heal", "Try now what waits for its next try");
  heal->add_option("id", into.volume_id,
                   "Volume id, whose try is waited for [every volume without a server, not waited for]");
  heal->add_flag("--adopt", into.adopt,
                 "Ask rbd-nbd, if it serves the volume, to end, and serve it from now on; needs an id")
      ->needs("id");
  heal->add_flag("--without-proof", into.without_proof,
                 "Your word that no other node used the image: it counts in this one try, and not against whoever says "
                 "otherwise; needs an id")
      ->needs("id")
      ->excludes("--adopt");
  add_timeout(heal, into, "120");

  auto* fail =
      add(app, into, What::fail, "fail", "Give a volume up: every request of its device gets EIO until it is unstaged");
  fail->add_option("id", into.volume_id, "Volume id")->required();
  fail->add_flag("--yes-really", into.yes_really, "It is meant");
  add_timeout(fail, into, "120");

  auto* drain =
      add(app, into, What::drain, "drain",
          "Stage nothing new, and wait until the last volume of this node is unstaged: before the agent is removed");
  drain->add_flag("--undo", into.undo, "Stage new volumes again");
  add_timeout(drain, into, "3600");

  auto* log_level = add(app, into, What::log_level, "log-level", "Set what the running agent logs, until it ends");
  log_level->add_option("level", into.level, "The least that a line must be")
      ->required()
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  add_timeout(log_level, into, "10");

  auto* events = add(app, into, What::events, "events", "The last changes of volumes' states");
  events->add_flag("-f,--follow", into.follow, "Go on with those to come, also over a restart of the agent");
  add_output(events, into, {"text", "json"});

  auto* alive = add(app, into, What::alive, "alive",
                    "Whether the agent answers, for a liveness probe: says nothing and ends with 0 if it does");
  add_timeout(alive, into, "10");
}

}  // namespace corbd::cli
