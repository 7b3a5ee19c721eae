#include "answers.hpp"

#include "support/catch.hpp"

using namespace corbd;
namespace v1 = ::csi::v1;

namespace {

volume::Status staged() {
  volume::Status status;
  status.volume_id = "image-1";
  status.health = volume::Health::staged;
  return status;
}

}  // namespace

TEST_CASE("the statistics of a filesystem volume contain bytes and inodes") {
  v1::NodeGetVolumeStatsResponse response;
  corbd::csi::fill(response, {100, 60, 30, 10, 4, 6}, staged());
  REQUIRE(response.usage_size() == 2);
  const auto& bytes = response.usage(0);
  CHECK(bytes.unit() == v1::VolumeUsage::BYTES);
  CHECK(std::array{bytes.total(), bytes.used(), bytes.available()} == std::array<std::int64_t, 3>{100, 60, 30});
  const auto& inodes = response.usage(1);
  CHECK(inodes.unit() == v1::VolumeUsage::INODES);
  CHECK(std::array{inodes.total(), inodes.used(), inodes.available()} == std::array<std::int64_t, 3>{10, 4, 6});
  CHECK_FALSE(response.volume_condition().abnormal());
}

TEST_CASE("the statistics of a raw block volume have one entry, its size in bytes") {
  auto status = staged();
  status.block = true;
  v1::NodeGetVolumeStatsResponse response;
  corbd::csi::fill(response, {100}, status);
  REQUIRE(response.usage_size() == 1);
  CHECK(response.usage(0).unit() == v1::VolumeUsage::BYTES);
  CHECK(response.usage(0).total() == 100);
  CHECK((response.usage(0).used() == 0 && response.usage(0).available() == 0));
}

TEST_CASE("the statistics of a raw block volume whose image was counted say what it uses and what is left") {
  auto status = staged();
  status.block = true;
  v1::NodeGetVolumeStatsResponse response;
  corbd::csi::fill(response, {100, 30, 70}, status);
  REQUIRE(response.usage_size() == 1);
  CHECK((response.usage(0).used() == 30 && response.usage(0).available() == 70));
}

TEST_CASE(
    "the statistics of an abnormal volume contain its condition beside its usage, and can be parsed even if the "
    "error's text is not UTF-8") {
  auto status = staged();
  status.health = volume::Health::lost;
  status.last_error = Error{errc::lost, "taken by \xff"};
  v1::NodeGetVolumeStatsResponse response;
  corbd::csi::fill(response, {100, 60, 30, 10, 4, 6}, status);
  v1::NodeGetVolumeStatsResponse received;
  REQUIRE(received.ParseFromString(response.SerializeAsString()));
  CHECK(received.volume_condition().abnormal());
  CHECK_THAT(received.volume_condition().message(), ContainsSubstring("taken by ?"));
  REQUIRE(received.usage_size() == 2);
  CHECK(received.usage(0).used() == 60);
  CHECK(received.usage(1).used() == 4);
}

TEST_CASE("a message of a health status has at most the 1024 bytes that Kubernetes stores, and can be parsed") {
  auto status = staged();
  status.health = volume::Health::lost;
  // A character of two bytes begins at the last byte that fits.
  status.last_error = Error{errc::lost, std::string(899, 'x')};
  const std::size_t before = volume::condition_of(status).message.size();
  status.last_error->text += std::string(1023 - before, 'y') + "\u00e4nd more";
  v1::NodeGetVolumeHealthResponse response, received;
  corbd::csi::fill(response, status);
  REQUIRE(received.ParseFromString(response.SerializeAsString()));
  const auto& message = received.volume_health().health_statuses(0).message();
  CHECK(message.size() == 1024);
  CHECK(message.back() == '?');
}

TEST_CASE("the storage has a status for each condition, and none while nothing is wrong") {
  v1::NodeGetStorageHealthResponse response;
  corbd::csi::fill(response, std::vector<corbd::csi::BackendCondition>());
  CHECK(response.backend_health().empty());
  corbd::csi::fill(response, {{true, "ClusterUnreachable", "a"}, {false, "PoolFull", std::string(2000, 'x')}});
  REQUIRE(response.backend_health_size() == 2);
  CHECK(response.backend_health(0).status() == v1::STORAGE_UNREACHABLE);
  CHECK(response.backend_health(0).reason() == "ClusterUnreachable");
  CHECK(response.backend_health(1).status() == v1::STORAGE_DEGRADED);
  CHECK(response.backend_health(1).message().size() == 1024);
}

TEST_CASE("a healthy volume has no health status, and a failed one is INACCESSIBLE with its reason") {
  auto status = staged();
  v1::NodeGetVolumeHealthResponse response;
  corbd::csi::fill(response, status);
  CHECK(response.volume_health().volume_id() == "image-1");
  CHECK(response.volume_health().health_statuses().empty());
  status.health = volume::Health::failed;
  corbd::csi::fill(response, status);
  REQUIRE(response.volume_health().health_statuses_size() == 1);
  CHECK(response.volume_health().health_statuses(0).status() == v1::INACCESSIBLE);
  CHECK(response.volume_health().health_statuses(0).reason() == "GivenUp");
}
