// Encrypted volumes.
#include "model.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace corbd::plan;

TEST_CASE(
    "a fresh stage of an encrypted volume proves its image empty before the header, and makes the filesystem on the "
    "mapping") {
  Model model = fresh();
  model.kms_id = "default";
  model.filesystem_bytes = mapping().size;
  const auto steps = run(model, Wish(staged_wish()));
  REQUIRE(steps);
  CHECK(*steps == sequence({opened(),
                            connected(),
                            {step::Look{Fact::encryption}, step::Look{Fact::luks}},
                            proven_empty(),
                            {step::LuksFormat{}, step::Look{Fact::luks}, step::LuksNote{}, step::LuksOpen{},
                             step::Look{Fact::probe}, step::Mkfs{}},
                            mounted()}));
  CHECK(model.record->kms_id == "default");
  CHECK(model.stash->encrypted);
}
