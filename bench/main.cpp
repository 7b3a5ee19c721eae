// corbd-bench: what corbd costs, and any other driver beside it. docs/performance.md has the figures.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <cstring>
#include <functional>

#include "cost.hpp"
#include "inventory.hpp"
#include "kube.hpp"
#include "node.hpp"
#include "serve.hpp"
#include "session.hpp"
#include "stages.hpp"
#include "volumes.hpp"

namespace {

using namespace corbd;

struct Words {
  bench::NodeAsk node;
  std::string volumes_file;
  std::size_t count = 0;
  double seconds = 0.5;
  bool kept = false;
  std::string json, folder;
  std::vector<std::string> names;
  std::vector<pid_t> pids;
  std::uint64_t requests = 0;
  int first = 0, second = 0;
  unsigned third = 0, io_threads = 1;
};

using Verb = std::function<int()>;

void add_node(CLI::App& app, Words& words, Verb& chosen) {
  auto* verb = app.add_subcommand("node", "Any CSI driver: stage, publish, stats, unpublish and unstage; its cost");
  verb->add_option("--endpoint", words.node.endpoint, "The driver's socket, unix:///path")->required();
  verb->add_option("--volumes", words.volumes_file, "JSON: ids, volume_context, secrets (bench/volumes.hpp)")
      ->required();
  verb->add_option("--root", words.node.root, "Where staging paths and targets are made")->required();
  verb->add_option("--count", words.count, "Only so many of the volumes");
  verb->add_option("--at-once", words.node.at_once, "Volumes under way together")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option_function<int>(
      "--settle", [&](int seconds) { words.node.settle = std::chrono::seconds(seconds); },
      "Seconds before a look at the cost; 1 without it");
  verb->add_option("--pid", words.node.driver, "The driver's process, if not the one that listens on the socket");
  verb->add_option("--words", words.node.words, "Also processes whose command line has these cost");
  verb->add_option("--subject", words.node.subject, "Its name in the figures, if not its own");
  verb->add_option("--json", words.node.json, "Where the figures go");
  verb->add_option("command", words.node.command, "Runs while all are published; $CORBD_BENCH_TARGETS lists them");
  verb->callback([&] {
    chosen = [&] {
      words.node.volumes = bench::read_volumes(words.volumes_file, words.node.root, words.count);
      return bench::node(words.node);
    };
  });
}

void add_cost(CLI::App& app, Words& words, Verb& chosen) {
  auto* verb = app.add_subcommand("cost", "What processes and their children take: threads, memory, descriptors");
  verb->add_option("--words", words.folder, "Also those whose command line has these");
  verb->add_option("pid", words.pids);
  verb->callback([&] {
    chosen = [&] {
      std::puts(boost::json::serialize(bench::json_of(bench::cost_of(words.pids, words.folder))).c_str());
      return 0;
    };
  });
}

/// Those in Python, which starts fio and other programs.
void add_scripts(CLI::App& app, char** argv, Verb& chosen) {
  static constexpr std::pair<const char*, const char*> kScripts[] = {
      {"io", "Devices, whoever serves them: IOPS, latency, CPU"},
      {"pgbench", "PostgreSQL on a filesystem: transactions per second"},
      {"driver", "Starts a CSI driver of bench/peers.json, drives it as node does, and ends it"},
      {"heal", "Kills a server of devices under writers: the first write after it, lost writes"},
      {"peer", "Serves images by the commands of bench/peers.json, beside node"},
      {"image", "Images of a real cluster without a kernel, beside qemu-nbd and librbd"}};
  for (const auto& [name, help] : kScripts) {
    auto* verb = app.add_subcommand(name, help);
    verb->prefix_command();
    verb->set_help_flag();
    verb->callback([argv, name, &chosen] {
      chosen = [argv, name] {
        const std::string script = std::string(CORBD_BENCH_SCRIPTS "/") + name + ".py";
        std::vector<char*> words{const_cast<char*>("python3"), const_cast<char*>(script.c_str())};
        for (char** word = argv + 2; *word != nullptr; ++word) words.push_back(*word);
        words.push_back(nullptr);
        ::execvp(words[0], words.data());
        std::perror("corbd-bench: python3");
        return 1;
      };
    });
  }
}

void add_scale(CLI::App& app, Words& words, Verb& chosen) {
  auto* verb = app.add_subcommand("scale", "The real control plane with many volumes, on a fake kernel and cluster");
  words.node.at_once = 8;
  verb->add_option("volumes", words.count, "1000 without it");
  verb->add_option("--at-once", words.node.at_once, "Volumes under way together")->check(CLI::PositiveNumber);
  verb->add_option("--json", words.json, "Where the figures go");
  verb->callback([&] {
    chosen = [&] {
      return bench::scale(words.count == 0 ? 1000 : static_cast<int>(words.count), words.node.at_once, words.json);
    };
  });
}

void add_own(CLI::App& app, Words& words, Verb& chosen) {
  auto* session = app.add_subcommand("session", "Our NBD server beside nbdkit, on images in memory");
  session->add_option("--seconds", words.seconds, "For each point and round")->capture_default_str();
  session->add_option("--json", words.json, "Where the figures go");
  session->add_flag("--kept", words.kept, "Ours keeps its requests in memory that outlives it, as with --keeper");
  session->add_option("beside", words.names, "The command of another server, which serves on stdin [nbdkit]");
  session->callback([&] {
    chosen = [&] { return bench::session(bench::Seconds(words.seconds), words.json, words.names, words.kept); };
  });
  auto* serve = app.add_subcommand("serve", "A memory image of 64 MiB on stdin");
  serve->add_flag("--kept", words.kept, "With its requests in memory that outlives it, as with --keeper");
  serve->callback([&] { chosen = [&] { return bench::serve(words.kept); }; });
  auto* drive =
      app.add_subcommand("drive", "COUNT reads and COUNT writes of 4 KiB against COMMAND, which serves on stdin");
  drive->add_option("count", words.requests)->required();
  drive->add_option("command", words.names)->required();
  drive->callback([&] { chosen = [&] { return bench::drive(words.requests, words.names); }; });
  auto* images = app.add_subcommand("images", "Serves images of a real cluster on sockets");
  images->add_option("--io-threads", words.io_threads, "As of `corbd run`")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  images->add_option("folder", words.folder)->required();
  images->add_option("image", words.names)->required();
  images->callback([&] { chosen = [&] { return bench::serve_images(words.folder, words.names, words.io_threads); }; });
}

/// Those whose words are one or two numbers, each with what it is without them.
void add_numbered(CLI::App& app, const char* name, const char* help, std::pair<const char*, int> first,
                  std::pair<const char*, int> second, Words& words, Verb& chosen, int (*run)(int, int)) {
  auto* verb = app.add_subcommand(name, help);
  words.first = words.second = -1;
  verb->add_option(first.first, words.first, std::to_string(first.second) + " without it");
  if (second.first != nullptr)
    verb->add_option(second.first, words.second, std::to_string(second.second) + " without it");
  verb->callback([&words, &chosen, first, second, run] {
    chosen = [&words, first, second, run] {
      return run(words.first < 0 ? first.second : words.first, words.second < 0 ? second.second : words.second);
    };
  });
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("What corbd costs, and any other driver beside it", "corbd-bench");
  app.require_subcommand(1);
  Words words;
  Verb chosen;
  add_node(app, words, chosen);
  add_scripts(app, argv, chosen);
  add_cost(app, words, chosen);
  add_scale(app, words, chosen);
  add_own(app, words, chosen);
  add_numbered(app, "stages", "Repeats of a stage that is done", {"volumes", 300}, {"calls", 1000}, words, chosen,
               bench::stages);
  add_numbered(app, "idle", "The CPU of volumes that nobody uses", {"volumes", 300}, {"seconds", 60}, words, chosen,
               [](int volumes, int time) { return bench::idle(volumes, std::chrono::seconds(time)); });
  add_numbered(app, "watch", "What a watch of the own Node costs in memory; a_second 0: as fast as they are taken",
               {"events", 360000}, {"a_second", 0}, words, chosen, bench::watch);
  add_numbered(app, "starts", "Agents that start at once, against an API server", {"agents", 5000}, {nullptr, 0}, words,
               chosen, [](int agents, int) { return bench::starts(agents); });
  app.add_subcommand("inventory", "Control-thread time of 300 and of 1,000 devices")->callback([&] {
    chosen = bench::inventory;
  });
  auto* memory = app.add_subcommand("memory", "Memory of devices with requests under way");
  words.third = 256 << 10;
  memory->add_option("devices", words.first);
  memory->add_option("depth", words.second);
  memory->add_option("bytes", words.third);
  memory->callback([&] {
    chosen = [&] {
      return bench::memory(words.first < 0 ? 300 : words.first, words.second < 0 ? 128 : words.second, words.third);
    };
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& wrong) {
    return app.exit(wrong);
  }
  return chosen();
} catch (const std::exception& failed) {
  std::fprintf(stderr, "corbd-bench: %s\n", failed.what());
  return 1;
}
