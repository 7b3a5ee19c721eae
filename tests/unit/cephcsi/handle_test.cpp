#include "corbd/cephcsi/handle.hpp"

#include <rapidcheck.h>

#include "support/catch.hpp"

using namespace corbd;
using cephcsi::decode_handle;
using cephcsi::decode_migrated_handle;

namespace {

const std::string kUuid = "50d53503-9da1-11ed-847e-bacf8f2f1297";
const std::string kHandle = "0001-0009-rook-ceph-0000000000000002-" + kUuid;
const std::string kMd5 = "d26a17667065ffae4e4e96ba3d46d18a";
const std::string kMigrated = "mig_mons-" + kMd5 + "_image-" + kUuid + "_7265706c696361706f6f6c";

}  // namespace

TEST_CASE("a handle tells cluster, pool and uuid, whatever hyphens the cluster id has") {
  const auto handle = decode_handle(kHandle);
  REQUIRE(handle);
  CHECK(*handle == cephcsi::Handle{"rook-ceph", 2, kUuid});
  const auto hyphens = decode_handle("0001-0024-b9127830-b0cc-4e34-aa47-9d1a2e9949a8-00000000000000ff-" + kUuid);
  REQUIRE(hyphens);
  CHECK(*hyphens == cephcsi::Handle{"b9127830-b0cc-4e34-aa47-9d1a2e9949a8", 255, kUuid});
}

TEST_CASE("a handle made by hand may end in any 36 letters, digits and hyphens, as for ceph-csi") {
  const auto handle = decode_handle("0001-0009-rook-ceph-0000000000000001-benji-restore-2021-07-01-00000000042");
  REQUIRE(handle);
  CHECK(handle->uuid == "benji-restore-2021-07-01-00000000042");
}

TEST_CASE("hexadecimal digits of a handle may have either case, and the uuid stays as written") {
  const auto lower = decode_handle("0001-000a-abcdefghij-00000000000000af-" + kUuid);
  const auto upper = decode_handle("0001-000A-abcdefghij-00000000000000AF-" + kUuid);
  REQUIRE(lower);
  REQUIRE(upper);
  CHECK(*lower == *upper);
  CHECK(upper->pool_id == 0xaf);
  CHECK(decode_handle("0001-0001-c-0000000000000001-50D53503-9DA1-11ED-847E-BACF8F2F1297")->uuid ==
        "50D53503-9DA1-11ED-847E-BACF8F2F1297");
}

TEST_CASE("the error for a malformed handle names the position") {
  struct Row {
    std::string id, part;
  };
  const auto row = GENERATE_COPY(values<Row>({
      {"", "at byte 0, the version is cut off"},
      {"image-1", "at byte 0, the version is not hexadecimal"},
      {"0002-0009-rook-ceph-0000000000000002-" + kUuid, "at byte 0, the version is not 0001"},
      {"0001_0009-rook-ceph-0000000000000002-" + kUuid, "at byte 4, '-' is expected"},
      {"0001-00g9-rook-ceph-0000000000000002-" + kUuid, "at byte 5, the cluster ID's length is not hexadecimal"},
      {"0001-+009-rook-ceph-0000000000000002-" + kUuid, "at byte 5, the cluster ID's length is not hexadecimal"},
      {"0001-0000--0000000000000002-" + kUuid, "at byte 5, the cluster ID's length is zero"},
      {"0001-ffff-rook-ceph-0000000000000002-" + kUuid, "at byte 10, the cluster ID is cut off"},
      {"0001-0009-rook/ceph-0000000000000002-" + kUuid, "at byte 10, the cluster ID is not made of"},
      {"0001-0008-rook-ceph-0000000000000002-" + kUuid, "at byte 18, '-' is expected"},
      {"0001-0009-rook-ceph-00000000000000z2-" + kUuid, "at byte 20, the pool ID is not hexadecimal"},
      {"0001-0009-rook-ceph-8000000000000000-" + kUuid, "at byte 20, the pool ID is negative"},
      {"0001-0009-rook-ceph-0000000000000002_" + kUuid, "at byte 36, '-' is expected"},
      {kHandle.substr(0, kHandle.size() - 1), "at byte 37, the uuid is cut off"},
      {"0001-0009-rook-ceph-0000000000000002-50d53503/9da1-11ed-847e-bacf8f2f1297", "at byte 37, the uuid is not made"},
      {kHandle + "0", "at byte 73, there are more bytes"},
      {"0001-0060-" + std::string(96, 'c') + "-0000000000000002-" + kUuid, "more than 128 bytes"},
  }));
  const auto handle = decode_handle(row.id);
  REQUIRE_FALSE(handle);
  CHECK(handle.error().code == errc::invalid_argument);
  CHECK_THAT(handle.error().text, ContainsSubstring(row.part));
}

TEST_CASE("every handle is decoded as it was encoded") {
  CHECK(rc::check([] {
    const auto id = *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::elementOf(std::string("abcXYZ019-_"))));
    const cephcsi::Handle handle{id.substr(0, 64), *rc::gen::inRange<std::int64_t>(0, INT64_MAX), kUuid};
    const auto again = decode_handle(cephcsi::encode(handle));
    const bool same = again.has_value() && *again == handle;
    RC_ASSERT(same);
  }));
  CHECK(cephcsi::encode(cephcsi::Handle{"rook-ceph", 2, kUuid}) == kHandle);
}

TEST_CASE("a migrated handle tells cluster, image and pool") {
  const auto handle = decode_migrated_handle(kMigrated);
  REQUIRE(handle);
  CHECK(*handle == cephcsi::MigratedHandle{kMd5, "kubernetes-dynamic-pvc-" + kUuid, "replicapool"});
  CHECK(cephcsi::encode(*handle) == kMigrated);
  CHECK(*decode_migrated_handle("mig_mons-" + kMd5 + "_image-" + kUuid + "_7265706C696361706F6F6C") == *handle);
}

TEST_CASE("a migrated handle is as long as its pool's name makes it") {
  const cephcsi::MigratedHandle handle{kMd5, "kubernetes-dynamic-pvc-" + kUuid, std::string(60, 'p')};
  REQUIRE(cephcsi::encode(handle).size() > 128);
  const auto again = decode_migrated_handle(cephcsi::encode(handle));
  REQUIRE(again);
  CHECK(*again == handle);
}

TEST_CASE("the error for a malformed migrated handle names the position") {
  struct Row {
    std::string id, part;
  };
  const auto row = GENERATE_COPY(values<Row>({
      {kHandle, "at byte 0, 'mig_mons-' is expected"},
      {"mig_mons-" + kMd5.substr(1) + "_image-" + kUuid + "_7265", "at byte 9, the monitors' md5 is not hexadecimal"},
      {"mig_mons-" + kMd5 + "_image_" + kUuid + "_7265", "at byte 41, '_image-' is expected"},
      {"mig_mons-" + kMd5 + "_image-" + kUuid.substr(1) + "_7265", "at byte 48, the image's uuid is not one"},
      {"mig_mons-" + kMd5 + "_image-" + kUuid, "at byte 84, '_' is expected"},
      {"mig_mons-" + kMd5 + "_image-" + kUuid + "_", "at byte 85, the pool's name"},
      {"mig_mons-" + kMd5 + "_image-" + kUuid + "_726", "at byte 85, the pool's name"},
      {"mig_mons-" + kMd5 + "_image-" + kUuid + "_72zz", "at byte 85, the pool's name is not hexadecimal"},
      {"mig_mons-" + kMd5 + "_image-" + kUuid + "_722f72", "at byte 85, the pool's name has bytes"},
  }));
  const auto handle = decode_migrated_handle(row.id);
  REQUIRE_FALSE(handle);
  CHECK(handle.error().code == errc::invalid_argument);
  CHECK_THAT(handle.error().text, ContainsSubstring(row.part));
}
