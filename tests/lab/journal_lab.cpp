// Tests the way from a volume ID to its image, by the journal of a real cluster.
#include "rbd_lab.hpp"
#include "support/provisioner.hpp"

using namespace corbd;
using namespace corbd::lab;
using test::NewVolume;

namespace {

/// One volume of the provisioner, for the time of a test.
struct Volume {
  explicit Volume(NewVolume how) : wanted(std::move(how)), made(provisioner.create(wanted)) {}
  ~Volume() { provisioner.remove(wanted, made); }
  result<image::Resolved> locate(std::string journal_pool = {}, std::string image = {}) {
    return agent.run(agent.clusters->locate(
        access(), {made.pool_id, made.uuid, std::move(journal_pool), std::move(image)}, wanted.ns, agent.in(20s)));
  }
  std::map<std::string, std::string> journal() {
    return test::journal_of(admin.cluster, wanted.journal_pool.empty() ? wanted.pool : wanted.journal_pool, wanted.ns,
                            made.uuid);
  }
  Admin admin;
  test::Provisioner provisioner{admin.cluster, "lab"};
  const NewVolume wanted;
  const test::NewHandle made;
  Agent agent;
};

NewVolume in_pool(std::string name) {
  NewVolume wanted;
  wanted.name = std::move(name);
  wanted.pool = pool_name();
  return wanted;
}

}  // namespace

TEST_CASE("a provisioner's volume is found by its journal, whatever its image is called") {
  auto wanted = in_pool("pvc-named");
  wanted.prefix = GENERATE("csi-vol-", "other-");
  Volume volume(wanted);
  const auto found = volume.locate();
  REQUIRE(found);
  CHECK(found->name.text() == pool_name() + "/" + volume.made.image);
  CHECK(found->key.pool_id == volume.made.pool_id);
  CHECK(found->key.image_id == volume.journal().at("csi.imageid"));
  CHECK(found->size == wanted.size);
  CHECK(found->exclusive_lock);
  CHECK(found->cluster_id == "lab");
  CHECK(found->kms_id.empty());
}

TEST_CASE("a lookup adds the image's ID to a journal that lacks it") {
  Volume volume(in_pool("pvc-id"));
  const auto whole = volume.journal();
  test::forget_in_journal(volume.admin.cluster, pool_name(), "", volume.made.uuid, "csi.imageid");
  REQUIRE(volume.locate());
  CHECK(volume.journal() == whole);
}

TEST_CASE(
    "without a journal the image has the name of the attributes, or else the default one, and no journal is made") {
  auto wanted = in_pool("pvc-lost");
  const bool hinted = GENERATE(false, true);
  if (hinted) wanted.prefix = "other-";
  Volume volume(wanted);
  test::remove_journal(volume.admin.cluster, pool_name(), "", volume.made.uuid);
  REQUIRE(volume.locate("", hinted ? volume.made.image : ""));
  CHECK(volume.journal().empty());
}

TEST_CASE("a journal without a name means the default one") {
  Volume volume(in_pool("pvc-nameless"));
  test::forget_in_journal(volume.admin.cluster, pool_name(), "", volume.made.uuid, "csi.imagename");
  CHECK(volume.locate());
}

TEST_CASE("each namespace has its own journal and image of a uuid") {
  Admin admin;
  if (const int r = rbd_namespace_create(admin.io, "tenant"); r != -EEXIST) Admin::check(r);
  auto wanted = in_pool("pvc-tenant");
  wanted.ns = "tenant";
  wanted.prefix = "tenant-";
  Volume volume(wanted);
  const auto found = volume.locate();
  REQUIRE(found);
  CHECK(found->key.ns == "tenant");
  const auto elsewhere = volume.agent.run(
      volume.agent.clusters->locate(access(), {volume.made.pool_id, volume.made.uuid}, "", volume.agent.in(20s)));
  REQUIRE_FALSE(elsewhere);
  CHECK(elsewhere.error().code == errc::not_found);
}

TEST_CASE("a journal in another pool than the image is found by the attribute that names the pool") {
  auto wanted = in_pool("pvc-topology");
  wanted.pool = "other";  // the lab has a second pool
  wanted.journal_pool = pool_name();
  wanted.prefix = "zone-";
  Volume volume(wanted);
  test::forget_in_journal(volume.admin.cluster, pool_name(), "", volume.made.uuid, "csi.imageid");
  CHECK_FALSE(volume.locate());
  CHECK_FALSE(volume.locate("no-such-pool"));
  const auto found = volume.locate(pool_name());
  REQUIRE(found);
  CHECK(found->name.text() == "other/" + volume.made.image);
  CHECK(volume.journal().at("csi.imageid") == found->key.image_id);
}

TEST_CASE("a volume in an unmapped pool, and one whose image is gone, are not found") {
  Volume volume(in_pool("pvc-gone"));
  const auto no_pool =
      volume.agent.run(volume.agent.clusters->locate(access(), {4711, volume.made.uuid}, "", volume.agent.in(20s)));
  REQUIRE_FALSE(no_pool);
  CHECK(no_pool.error().code == errc::not_found);
  CHECK_THAT(no_pool.error().text, ContainsSubstring("4711"));
  volume.admin.remove(volume.made.image);
  const auto no_image = volume.locate();
  REQUIRE_FALSE(no_image);
  CHECK(no_image.error().code == errc::not_found);
  CHECK_THAT(no_image.error().text, ContainsSubstring(volume.made.image));
}

TEST_CASE("a journal tells that its volume is encrypted") {
  auto wanted = in_pool("pvc-encrypted");
  wanted.kms = "some-kms";
  Volume volume(wanted);
  const auto found = volume.locate();
  REQUIRE(found);
  CHECK(found->kms_id == "some-kms");
  CHECK(found->tenant == "lab");
}

TEST_CASE("a volume with Ceph options of its own has a connection of its own, whose promises they do not touch") {
  Volume volume(in_pool("pvc-options"));
  const auto open = [&](std::map<std::string, std::string> config) {
    auto to = access();
    to.config = std::move(config);
    auto& agent = volume.agent;
    auto found = agent.run(agent.clusters->locate(to, {volume.made.pool_id, volume.made.uuid}, "", agent.in(20s)));
    if (!found) return errc(found.error().code);
    if (auto fenced = agent.run(agent.clusters->fence_dead(to, agent.in(20s))); !fenced)
      return errc(fenced.error().code);
    auto image = agent.run(agent.clusters->open(to, found->key, {}, agent.in(20s)));
    if (!image) return errc(image.error().code);
    return agent.run((*image)->close(agent.in(20s))) ? errc::ok : errc::internal;
  };
  CHECK(open({}) == errc::ok);
  CHECK(open({{"rbd_op_threads", "2"}}) == errc::ok);
  CHECK(volume.agent.incarnation_files() == 2);
  CHECK(open({{"rbd_cache", "true"}}) == errc::ok);
  CHECK(open({{"rbd_persistent_cache_mode", "rwl"}}) == errc::unsafe_config);
  CHECK(open({{"rbd_no_such_option", "1"}}) == errc::invalid_argument);
}
