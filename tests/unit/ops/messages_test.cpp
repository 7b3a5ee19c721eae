#include "messages.hpp"

#include "support/catch.hpp"

using namespace corbd;
using ops::to_message;
using namespace std::chrono_literals;

namespace {

const time_point now = time_point() + 1h;

volume::Status staged(const std::string& image) {
  volume::Status made;
  made.volume_id = "1";
  made.image = image;
  return made;
}

}  // namespace

TEST_CASE("pool, namespace and image are told apart") {
  const heal::HealQueue queue({});
  const auto with = to_message(staged("pool/space/image"), queue, now);
  CHECK(with.pool() == "pool");
  CHECK(with.namespace_() == "space");
  CHECK(with.image() == "image");
  const auto without = to_message(staged("pool/image"), queue, now);
  CHECK(without.pool() == "pool");
  CHECK(without.namespace_().empty());
  CHECK(without.image() == "image");
}

TEST_CASE("every health has a message of the same word") {
  const heal::HealQueue queue({});
  for (int i = 0; i <= static_cast<int>(volume::Health::unstaging); ++i) {
    auto status = staged("pool/image");
    status.health = static_cast<volume::Health>(i);
    std::string word = v1::Health_Name(to_message(status, queue, now).health());
    for (auto& c : word) c = static_cast<char>(std::tolower(c));
    CHECK(word == "health_" + std::string(name(status.health)));
  }
}

TEST_CASE("what a volume does not have is absent from its message") {
  const auto message = to_message(staged("pool/image"), heal::HealQueue({}), now);
  CHECK_FALSE(message.has_device());
  CHECK_FALSE(message.has_unserved_ms());
  CHECK_FALSE(message.has_last_error());
  CHECK_FALSE(message.has_healing());
}

TEST_CASE("a volume that the kernel's client serves is told as such") {
  auto status = staged("pool/image");
  status.kind = device::Kind::krbd;
  status.device = 3;
  const auto message = to_message(status, heal::HealQueue({}), now);
  CHECK(message.by_kernel());
  CHECK(message.device_path() == "/dev/rbd3");
}

TEST_CASE("all that is known of a volume is in its message") {
  auto status = staged("pool/image");
  status.since = std::chrono::system_clock::time_point(5s);
  status.cluster_id = "a";
  status.image_key = "fsid/1//id";
  status.device = 0;
  status.size = 1 << 20;
  status.block = status.read_only = status.unserved = true;
  status.staged_at = {"/s"};
  status.published_at = {"/p", "/q"};
  status.unserved_since = now - 3s;
  status.waiting = 2;
  status.oldest = 4s;
  status.counts.links_lost = 5;
  status.counts.longest_stall = 6s;
  status.counts.trimmed_bytes = 7;
  status.counts.trimmed_at = std::chrono::system_clock::time_point(8s);
  status.used = volume::UsedBytes{9, now - 10s};
  status.why_not_trimmed = "it is busy";
  status.last_error = Error{errc::lost, "gone"};
  const auto message = to_message(status, heal::HealQueue({}), now);
  CHECK(message.since_at_ms() == 5000);
  CHECK(message.cluster_id() == "a");
  CHECK(message.image_key() == "fsid/1//id");
  CHECK(message.has_device());
  CHECK_FALSE(message.by_kernel());
  CHECK(message.size_bytes() == 1 << 20);
  CHECK((message.block() && message.read_only() && message.unserved()));
  CHECK(message.staged_at_size() == 1);
  CHECK(message.published_at_size() == 2);
  CHECK(message.unserved_ms() == 3000);
  CHECK(message.waiting() == 2);
  CHECK(message.oldest_request_ms() == 4000);
  CHECK(message.links_lost() == 5);
  CHECK(message.longest_stall_ms() == 6000);
  CHECK(message.trimmed_bytes() == 7);
  CHECK(message.trimmed_at_ms() == 8000);
  CHECK((message.used_bytes() == 9 && message.used_age_ms() == 10'000));
  CHECK(message.why_not_trimmed() == "it is busy");
  CHECK(message.last_error().code() == "lost");
  CHECK(message.last_error().text() == "gone");
}

TEST_CASE("a try under way has no time of the next one") {
  heal::HealQueue queue({});
  heal::HealEntry entry;
  entry.volume_id = "1";
  entry.why = "its link died";
  queue.add(entry, now);
  REQUIRE(queue.start(now).size() == 1);
  const auto trying = to_message(staged("pool/image"), queue, now).healing();
  CHECK(trying.under_way());
  CHECK(trying.next_try_ms() == 0);
  queue.ended("1", heal::Outcome::failed, now, 0.5);
  const auto waiting = to_message(staged("pool/image"), queue, now).healing();
  CHECK(waiting.attempts() == 1);
  CHECK(waiting.next_try_ms() == 500);
  CHECK(waiting.why() == "its link died");
}
