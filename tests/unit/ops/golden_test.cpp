// The metrics of 0.1.0. tests/unit/ops/golden/metrics-0.1.0.txt is what this test shows without that file, and never
// changes (docs/compatibility.md): add a line for a new metric only to the list of a later version.
#include <fstream>
#include <set>
#include <sstream>

#include "corbd/ops/metrics.hpp"
#include "support/catch.hpp"
#include "support/places.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

/// A sample of every metric.
std::string everything() {
  const time_point now = time_point() + 1h;
  heal::HealQueue queue({});
  heal::HealEntry entry;
  entry.volume_id = "v1";
  entry.cluster_id = "prod";
  queue.add(entry, now);
  ops::Calls calls;
  calls.add({"NodeStageVolume", 0, 100ms});
  volume::Status one;
  one.volume_id = "v1";
  one.cluster_id = "prod";
  one.device = 3;
  one.io_limits = {{"shop/db-0", {.write_iops = 100}}};
  ops::Snapshot all;
  all.now = now;
  all.volumes = {one};
  all.volume_metrics = ops::VolumeMetrics::latency;
  all.healing = ops::healing_of(queue, all.volumes);
  all.calls = calls;
  all.keeper = ops::KeeperFacts{};
  all.health = ops::judge({});
  all.process = ops::read_process();
  return ops::render(all);
}

/// "corbd_volume_state gauge", "corbd_volume_state{volume,state}". Not the values of labels.
std::set<std::string> shapes_of(const std::string& text) {
  std::set<std::string> shapes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) shapes.insert(line.substr(7));
    if (line.starts_with('#')) continue;
    std::string shape;
    bool quoted = false;
    for (const char letter : line.substr(0, line.rfind(' '))) {
      if (letter == '"') quoted = !quoted;
      if (!quoted && letter != '"' && letter != '=') shape += letter;
    }
    shapes.insert(shape);
  }
  return shapes;
}

}  // namespace

TEST_CASE("every metric of 0.1.0 is there, with its type and its labels") {
  const auto today = shapes_of(everything());
  std::ifstream golden(test::tests_folder() + "/unit/ops/golden/metrics-0.1.0.txt");
  int lines = 0;
  for (std::string line; std::getline(golden, line); ++lines) {
    INFO(line);
    CHECK(today.contains(line));
  }
  std::string all;
  for (const auto& shape : today) all += shape + "\n";
  INFO("today's:\n" << all);  // what a new golden file is made of
  CHECK(lines > 60);
}
