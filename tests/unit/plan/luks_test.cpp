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
  CHECK(*steps == std::vector<Step>{step::Look{Fact::resolved},
                                    step::WriteRecord{},
                                    step::Look{Fact::stash},
                                    step::WriteStash{kPath, {}},
                                    step::Fence{},
                                    step::OpenImage{},
                                    step::Look{Fact::ownership},
                                    step::Lock{},
                                    step::StartSession{},
                                    step::KernelConnect{},
                                    step::WriteStash{kPath, {}},
                                    step::WriteRecord{},
                                    step::Tune{},
                                    step::Look{Fact::encryption},
                                    step::Look{Fact::luks},
                                    step::Look{Fact::format_marker},
                                    step::Look{Fact::has_data},
                                    step::WriteRecord{},
                                    step::Mark{},
                                    step::LuksFormat{},
                                    step::Look{Fact::luks},
                                    step::LuksNote{},
                                    step::LuksOpen{},
                                    step::Look{Fact::probe},
                                    step::Mkfs{},
                                    step::Look{Fact::probe},
                                    step::Mount{kTarget},
                                    step::Look{Fact::filesystem, kTarget},
                                    step::Unmark{},
                                    step::WriteRecord{}});
  CHECK(model.record->kms_id == "default");
  CHECK(model.stash->encrypted);
}
