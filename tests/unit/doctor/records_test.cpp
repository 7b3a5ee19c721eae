// Which records the doctor counts.
#include "corbd/core/file.hpp"
#include "inputs.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/sample_record.hpp"

using namespace corbd;

TEST_CASE("the doctor counts a volume's record at its own name only, as the agent does") {
  const test::Folder folder;
  auto record = test::sample_record();
  const std::string volumes = folder.path() + "/volumes/";
  REQUIRE(make_folder(volumes, 0700));
  REQUIRE(write_durably(volumes + sha256_hex(record.volume_id) + ".json", plan::encode(record), 0600));
  record.device.index = 77;
  REQUIRE(write_durably(volumes + "z-copy.json", plan::encode(record), 0600));
  record.volume_id = "another";
  REQUIRE(write_durably(volumes + "copy.json", plan::encode(record), 0600));
  const auto found = doctor::read_records(folder.path());
  CHECK(found.complete);
  CHECK(found.volumes == std::set<std::string>{test::sample_record().volume_id});
  CHECK(found.numbers.at(test::sample_record().volume_id) == *test::sample_record().device.index);
}
