// Who decides whether snapshots freeze a volume's filesystem.
#include "../../../src/volume/snapshots.hpp"
#include "support/catch.hpp"

using corbd::volume::quiesces;

TEST_CASE("the image's quiesce mode decides about freezes before mapOptions, and those before the agent's flag") {
  struct Case {
    std::optional<std::string> mode;
    std::optional<bool> map_options;
    bool flag, freezes;
  };
  const auto one =
      GENERATE(Case{{}, {}, false, false}, Case{{}, {}, true, true}, Case{{}, false, true, false},
               Case{{}, true, false, true}, Case{"required", {}, false, true}, Case{"ignore-error", false, false, true},
               Case{"skip", true, true, false}, Case{"nonsense", true, false, true}, Case{"", {}, false, false});
  CAPTURE(one.mode, one.map_options, one.flag);
  corbd::volume::Record record;
  record.source.serving.quiesce = one.map_options;
  corbd::volume::Config config;
  config.quiesce = one.flag;
  CHECK(quiesces(record, config, one.mode) == one.freezes);
}
