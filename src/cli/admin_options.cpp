#include "admin_options.hpp"

#include "admin_socket.hpp"
#include "top.hpp"

namespace corbd::cli {
namespace {

CLI::App* add(CLI::App& app, Admin& into, Admin::What what, const char* name, const char* description) {
  auto* command = app.add_subcommand(name, description);
  command->callback([&into, what] { into.what = what; });
  command->add_option("--runtime-dir", into.runtime_dir, kRuntimeDirHelp)->envname("CORBD_RUNTIME_DIR");
  command->footer("Exit code: 0 done, 1 refused or failed, 3 no agent answers, 64 wrong command line.");
  return command;
}

void add_output(CLI::App* command, Admin& into, std::vector<std::string> forms) {
  const std::string first = forms.front();
  command->add_option("-o,--output", into.output, "Output format [" + first + "]")
      ->check(CLI::IsMember(std::move(forms)));
}

void add_timeout(CLI::App* command, Admin& into, const char* fallback) {
  command->add_option("--timeout", into.timeout_s, std::string("Seconds to wait [") + fallback + "]")
      ->check(CLI::Range(1, 86400));
}

}  // namespace

void add_admin(CLI::App& app, Admin& into) {
  using What = Admin::What;
  auto* status =
      add(app, into, What::status, "status", "Show the state of this node's agent, its volumes and their clusters");
  status->footer(
      "Exit code: 0 OK, 1 warning (it may clear by itself), 2 critical (requests wait or fail until somebody acts), 3 "
      "no agent answers, 64 wrong command line.");
  add_output(status, into, {"text", "json"});
  add_timeout(status, into, "10");

  auto* volumes = add(app, into, What::volumes, "volumes", "List the volumes of this node");
  add_output(volumes, into, {"table", "wide", "json"});
  add_timeout(volumes, into, "10");

  auto* volume = add(app, into, What::volume, "volume", "Show one volume and its latest state changes");
  volume->add_option("id", into.volume_id, "Volume ID")->required();
  add_output(volume, into, {"text", "json"});
  add_timeout(volume, into, "10");

  auto* heal = add(app, into, What::heal, "heal", "Heal volumes now instead of at their next try");
  heal->add_option(
      "id", into.volume_id,
      "Volume ID; the command waits for the end of its try [every volume without a server; the command does not wait]");
  heal->add_flag("--adopt", into.adopt,
                 "Take the volume over: if rbd-nbd serves it, ask rbd-nbd to end and serve it here; needs an ID")
      ->needs("id");
  heal->add_flag("--without-proof", into.without_proof,
                 "Your word that no other node used the image. It counts for this one try and overrules nobody who "
                 "says otherwise. Needs an ID")
      ->needs("id")
      ->excludes("--adopt");
  add_output(heal, into, {"text", "json"});
  add_timeout(heal, into, "120");

  auto* fail = add(app, into, What::fail, "fail",
                   "Give a volume up: every request to its device gets EIO until the volume is unstaged");
  fail->add_option("id", into.volume_id, "Volume ID")->required();
  fail->add_flag("--yes-really", into.yes_really, "Confirm; without this flag nothing is done");
  add_output(fail, into, {"text", "json"});
  add_timeout(fail, into, "120");

  auto* drain = add(app, into, What::drain, "drain",
                    "Stop staging new volumes, and wait until every volume of this node is unstaged. Run this before "
                    "you remove the agent. It holds across restarts of the agent and of the node, until --undo or for "
                    "a week");
  add_output(drain, into, {"text", "json"});
  drain->add_flag("--undo", into.undo, "Allow new volumes to be staged again");
  add_timeout(drain, into, "3600");

  auto* log_level =
      add(app, into, What::log_level, "log-level", "Set the log level of the running agent, until it ends");
  log_level->add_option("level", into.level, "Lowest level that is logged")
      ->required()
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  add_output(log_level, into, {"text", "json"});
  add_timeout(log_level, into, "10");

  auto* events = add(app, into, What::events, "events", "Show the latest state changes of all volumes");
  events->add_flag("-f,--follow", into.follow, "Keep printing new changes, even across a restart of the agent");
  add_output(events, into, {"text", "json"});

  auto* top = add(app, into, What::top, "top", "Show what the volumes of this node do now: a table that renews itself");
  std::vector<std::string> columns;
  for (const auto& column : top_columns()) columns.emplace_back(column.name);
  top->add_option("--sort", into.sort, "Column that orders the table, the largest first")
      ->check(CLI::IsMember(std::move(columns)))
      ->capture_default_str();
  top->add_option("--interval", into.interval_s, "Seconds between two looks")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  top->add_flag("--once", into.once, "Print one table and end, as where the output is no terminal");
  add_output(top, into, {"text", "json"});
  top->footer(
      "Keys: i IOPS, b bytes, l p99 latency, f in flight, s state, n name; q ends. Exit code: 0 done, 1 failed, 3 no "
      "agent answers.");

  auto* handover =
      add(app, into, What::handover, "handover",
          "Start the next agent, with the arguments of the one that serves and this program: it takes the devices over "
          "without a break, and the one before ends. For `systemctl reload corbd`: the next agent is in the control "
          "group of whoever gives this command");
  add_timeout(handover, into, "280");

  auto* alive =
      add(app, into, What::alive, "alive",
          "Check whether the agent answers, for a liveness probe: prints nothing and exits with 0 if it does");
  alive->add_flag("--ready", into.ready,
                  "For a readiness probe: also check that new volumes can be staged, and that the agent is the one of "
                  "this pod; an agent in reserve is ready");
  alive
      ->add_option("--pod", into.pod,
                   "UID of this pod: with --ready its own agent must answer; otherwise one that starts or hands over "
                   "is alive too")
      ->envname("POD_UID");
  add_timeout(alive, into, "10");
}

}  // namespace corbd::cli
