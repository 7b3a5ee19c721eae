#include "framer.hpp"

#include "ground.hpp"
#include "outbox.hpp"

namespace corbd::test {
namespace {

using Kind = nbd::Framer::Kind;
constexpr nbd::Limits kLimits{1 << 20, false, 256 << 10};

/// Feeds a stream in steps and writes down what comes out, payloads included.
struct Cut {
  explicit Cut(bool this_message_only = false) : only(this_message_only) {}
  void feed(const Bytes& stream, std::size_t step) {
    for (std::size_t at = 0; at < stream.size();) {
      iovec into[2];
      const std::size_t parts = framer.room(into, only);
      std::size_t left = std::min(step, stream.size() - at), taken = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        const std::size_t now = std::min(left, into[i].iov_len);
        std::memcpy(into[i].iov_base, stream.data() + at, now);
        at += now, left -= now, taken += now;
      }
      framer.arrived(taken);
      run();
      if (taken == 0) return;
    }
  }
  void run() {
    for (;;) {
      const auto event = framer.next(kLimits);
      if (event.kind == Kind::starved) return;
      seen.push_back(event.kind);
      if (event.kind == Kind::request && event.request.has_payload() && event.request.length > 0) {
        payload.assign(event.request.length, std::byte{0});
        framer.payload_into(payload.data());
      }
      if (event.kind == Kind::filled) payloads.push_back(payload);
      if (event.kind == Kind::broken) return;
    }
  }
  bool only;
  nbd::Framer framer;
  std::vector<Kind> seen;
  Bytes payload;
  std::vector<Bytes> payloads;
};

Bytes mixed_stream() {
  return request(Command::write, 1, 0, 5000) + pattern(5000, 1) + request(Command::read, 2, 0, 4096) +
         request(Command::write, 3, 0, 200000) + pattern(200000, 2) + request(Command::flush, 4) +
         request(Command::write, 5, 2 << 20, 9000) + pattern(9000, 3) + request(Command::write, 6, 0, 1) +
         pattern(1, 4) + request(Command::write, 7, 0, 0) + request(Command::trim, 8, 0, 4096);
}
const std::vector<Kind> kMixed{Kind::request, Kind::filled,  Kind::request, Kind::request, Kind::filled, Kind::request,
                               Kind::refused, Kind::request, Kind::filled,  Kind::request, Kind::request};

}  // namespace

TEST_CASE("however the stream is cut, the same requests and payloads come out") {
  for (const std::size_t step : {1u, 7u, 28u, 4096u, 70000u, 1000000u})
    for (const bool only : {false, true}) {
      INFO(step << " " << only);
      Cut cut(only);
      cut.feed(mixed_stream(), step);
      CHECK(cut.seen == kMixed);
      REQUIRE(cut.payloads.size() == 3);
      CHECK(cut.payloads[0] == pattern(5000, 1));
      CHECK(cut.payloads[1] == pattern(200000, 2));
      CHECK(cut.payloads[2] == pattern(1, 4));
      CHECK(cut.framer.at_boundary());
    }
}

TEST_CASE("a draining framer asks for no byte beyond the message that has begun") {
  const Bytes stream = request(Command::write, 1, 0, 5000) + pattern(5000);
  Cut cut(true);
  cut.feed(Bytes(stream.begin(), stream.begin() + 100), 1000);
  iovec into[2];
  REQUIRE(cut.framer.room(into, true) == 1);
  CHECK(into[0].iov_len == 5000 - (100 - nbd::request_bytes));
}

TEST_CASE("a draining framer asks for the rest of a header that follows a skipped payload") {
  // 5 bytes that are skipped, and 20 of a header: the header stays where it is, because its copy would overlap.
  const Bytes stream = request(Command::write, 1, 2 << 20, 5) + pattern(5) + request(Command::flush, 2);
  Cut cut;
  cut.feed(Bytes(stream.begin(), stream.begin() + nbd::request_bytes), 1000);
  cut.feed(Bytes(stream.begin() + nbd::request_bytes, stream.end() - 8), 1000);
  iovec into[2];
  REQUIRE(cut.framer.room(into, true) == 1);
  CHECK(into[0].iov_len == 8);
}

TEST_CASE("an unfinished message is not at a boundary") {
  const Bytes stream = request(Command::write, 1, 0, 10) + pattern(10);
  for (std::size_t size = 1; size < stream.size(); ++size) {
    Cut cut;
    cut.feed(Bytes(stream.begin(), stream.begin() + static_cast<std::ptrdiff_t>(size)), size);
    CHECK_FALSE(cut.framer.at_boundary());
  }
}

TEST_CASE("random bytes in place of a request are broken, not a crash", "[failure:51]") {
  Cut cut;
  cut.feed(pattern(28, 9), 28);
  CHECK(cut.seen == std::vector<Kind>{Kind::broken});
}

TEST_CASE("replies leave in order, however few bytes go out at a time") {
  for (const std::size_t step : {1u, 5u, 16u, 100u, 100000u}) {
    std::array<nbd::Reply, 5> replies;
    std::vector<Bytes> datas;
    for (unsigned i = 0; i < replies.size(); ++i) datas.push_back(pattern(i == 1 ? 0 : 50 * i, i));
    Bytes expected, sent;
    nbd::Outbox outbox;
    for (unsigned i = 0; i < replies.size(); ++i) {
      replies[i].head = nbd::make_reply(i, 0);
      replies[i].data = datas[i].data();
      replies[i].data_bytes = static_cast<std::uint32_t>(datas[i].size());
      expected = expected + Bytes(replies[i].head.begin(), replies[i].head.end()) + datas[i];
      outbox.push(replies[i]);
    }
    std::vector<nbd::Reply*> out;
    while (!outbox.empty()) {
      iovec parts[4];
      std::uint16_t numbers[4];
      const std::size_t count = outbox.parts(parts, numbers).parts;
      REQUIRE(count > 0);
      std::size_t left = step, taken = 0;
      for (std::size_t i = 0; i < count && left > 0; ++i) {
        const std::size_t now = std::min(left, parts[i].iov_len);
        const auto* data = static_cast<std::byte*>(parts[i].iov_base);
        sent.insert(sent.end(), data, data + now);
        left -= now, taken += now;
      }
      for (auto* reply = outbox.sent(taken); reply != nullptr; reply = reply->next_reply) out.push_back(reply);
    }
    CHECK(sent == expected);
    REQUIRE(out.size() == replies.size());
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i] == &replies[i]);
  }
}

}  // namespace corbd::test
