#include "record_index.hpp"

#include "support/catch.hpp"

using namespace corbd;
using volume::HeldRecord;
using volume::Record;
using volume::RecordIndex;

namespace {

Record record_of(const std::string& id, const std::string& image, const std::string& path,
                 const std::string& target = "") {
  Record record;
  record.volume_id = id;
  record.key.image_id = image;
  plan::Staging staging;
  staging.path = path;
  record.stagings.push_back(staging);
  plan::Publish publish;
  publish.target = target;
  if (!target.empty()) record.publishes.push_back(publish);
  return record;
}

image::Key key(const std::string& image) {
  image::Key made;
  made.image_id = image;
  return made;
}

using Ids = std::set<std::string>;

}  // namespace

TEST_CASE("a record is found by its image and by each of its paths, until it changes") {
  RecordIndex all;
  const std::string a = "a", b = "b";
  {
    HeldRecord first(all, a), under_way(all, a), second(all, b);
    first = record_of(a, "one", "/s/a", "/t/a");
    under_way = record_of(a, "one", "/s/a", "/t/a");
    second = record_of(b, "one", "/s/b");
    CHECK(all.of_image(key("one")) == Ids{"a", "b"});
    CHECK(all.of_image(key("on")).empty());
    CHECK(all.at({"/s/a"}) == Ids{"a"});
    CHECK(all.at({"/s/a/a", "/s/b/b"}) == Ids{"a", "b"});
    CHECK(all.at({"/t/a"}) == Ids{"a"});
    CHECK(all.at({"/s"}).empty());
    under_way.reset();
    CHECK(all.at({"/t/a"}) == Ids{"a"});
    first = record_of(a, "two", "/s/c");
    CHECK(all.of_image(key("one")) == Ids{"b"});
    CHECK(all.of_image(key("two")) == Ids{"a"});
    CHECK(all.at({"/s/a", "/s/a/a", "/t/a"}).empty());
    second.reset();
    CHECK(all.of_image(key("one")).empty());
  }
  CHECK(all.of_image(key("two")).empty());
  CHECK(all.at({"/s/c"}).empty());
}
