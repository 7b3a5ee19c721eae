// What a ledger says after a death, and every way in which it may not add up.
#include "outstanding.hpp"

#include <cstddef>
#include <cstring>
#include <fstream>
#include <map>

#include "ground.hpp"
#include "ledger.hpp"
#include "support/places.hpp"

namespace corbd::test {
namespace {

using nbd::Outstanding;
using nbd::ledger::Head;
using nbd::ledger::State;

constexpr std::uint32_t kArenaToken = 99;

/// A ledger in the hand of a test, which writes it as a session does or otherwise.
struct Book {
  Book() {
    auto made = nbd::Ledger::make(true);
    REQUIRE(made);
    ledger.emplace(std::move(*made));
    ledger->belongs_to(3, "volume", kArenaToken);
  }
  Bytes bytes() const {
    Bytes out(nbd::ledger::kBytes);
    REQUIRE(::pread(ledger->file(), out.data(), out.size(), 0) == static_cast<ssize_t>(out.size()));
    return out;
  }
  result<Outstanding> recover_outstanding() const { return nbd::recover_outstanding(bytes(), expected); }
  /// With the head as `change` leaves it.
  template <class Change>
  result<Outstanding> recover_with(Change change) const {
    Bytes all = bytes();
    change(*reinterpret_cast<Head*>(all.data()));
    return nbd::recover_outstanding(all, expected);
  }
  template <class Change>
  result<Outstanding> recover_with_slot(std::size_t number, Change change) const {
    Bytes all = bytes();
    change(*reinterpret_cast<nbd::ledger::Slot*>(all.data() + nbd::ledger::kHeadBytes +
                                                 number * sizeof(nbd::ledger::Slot)));
    return nbd::recover_outstanding(all, expected);
  }
  void take(std::uint16_t number, Command command, std::uint32_t length, std::uint64_t buffer) {
    ledger->taken(number, {0, command, number + 100u, 0, length}, buffer);
    ledger->publish(nbd::ledger::Reader{});
  }

  std::optional<nbd::Ledger> ledger;
  nbd::Expected expected{3, "volume", {1 << 20, false, 1 << 20}, {{kArenaToken, 1 << 20}}};
};

std::string why(const result<Outstanding>& found) {
  REQUIRE_FALSE(found);
  CHECK(found.error().code == errc::failed_precondition);
  return found.error().text;
}

}  // namespace

// Offsets of 0.1.0's Head and Slot. The file never changes: another layout is another kLedgerVersion
// (docs/compatibility.md).
TEST_CASE("a ledger has the layout of 0.1.0") {
  using nbd::ledger::Reader, nbd::ledger::Writer, nbd::ledger::Slot;
  const std::map<std::string, std::size_t> today{
#define CORBD_AT(of, field) {#of "." #field, offsetof(of, field)}
      CORBD_AT(Head, magic),
      CORBD_AT(Head, version),
      CORBD_AT(Head, slots),
      CORBD_AT(Head, input),
      CORBD_AT(Head, device),
      CORBD_AT(Head, backend),
      CORBD_AT(Head, token),
      CORBD_AT(Head, arena),
      CORBD_AT(Head, reader_seq),
      CORBD_AT(Head, receive_seq),
      CORBD_AT(Head, reader),
      CORBD_AT(Head, receive),
      CORBD_AT(Head, writer_seq),
      CORBD_AT(Head, send_seq),
      CORBD_AT(Head, writer),
      CORBD_AT(Head, send),
      CORBD_AT(Head, sends),
      CORBD_AT(Head, sending),
      CORBD_AT(Reader, begin),
      CORBD_AT(Reader, end),
      CORBD_AT(Reader, payload_left),
      CORBD_AT(Reader, skip_left),
      CORBD_AT(Reader, filling),
      CORBD_AT(Writer, partly),
      CORBD_AT(Writer, sent),
      CORBD_AT(Slot, state),
      CORBD_AT(Slot, error),
      CORBD_AT(Slot, born),
      CORBD_AT(Slot, buffer),
      CORBD_AT(Slot, cookie),
      CORBD_AT(Slot, offset),
      CORBD_AT(Slot, length),
      CORBD_AT(Slot, flags),
      CORBD_AT(Slot, command),
#undef CORBD_AT
      {"magic", nbd::ledger::kMagic},
      {"version", nbd::ledger::kVersion},
      {"slots", nbd::ledger::kSlots},
      {"input", nbd::ledger::kInput},
      {"head", nbd::ledger::kHeadBytes},
      {"bytes", nbd::ledger::kBytes}};
  std::ifstream file(tests_folder() + "/unit/nbd/golden/ledger-0.1.0.txt");
  std::map<std::string, std::size_t> golden;
  std::string name;
  for (std::size_t value = 0; file >> name >> value;) golden[name] = value;
  CHECK(golden == today);
}

TEST_CASE("a session that had nothing to do owes nothing") {
  const auto found = Book().recover_outstanding();
  REQUIRE(found);
  CHECK(found->slots.empty());
  CHECK(found->input.empty());
  CHECK(found->skip_left == 0);
}

TEST_CASE("requests are owed in the order in which they were read") {
  Book book;
  book.take(5, Command::flush, 0, 0);
  book.take(2, Command::write, 4096, 8192);
  book.take(9, Command::read, 512, 0);
  const auto found = book.recover_outstanding();
  REQUIRE(found);
  REQUIRE(found->slots.size() == 3);
  CHECK(found->slots[0].request.cookie == 105);
  CHECK(found->slots[1].request.cookie == 102);
  CHECK(found->slots[1].data_bytes() == 4096);
  CHECK(found->slots[2].request.cookie == 109);
  CHECK(found->slots[2].data_bytes() == 0);
}

TEST_CASE("a request whose reader died before publishing it counts as unread input") {
  Book book;
  book.ledger->publish(nbd::ledger::Reader{0, 28, 0, 0, 0});
  book.ledger->taken(0, {0, Command::flush, 1, 0, 0}, 0);
  const auto found = book.recover_outstanding();
  REQUIRE(found);
  CHECK(found->slots.empty());
  CHECK(found->input.size() == 28);
}

TEST_CASE("bytes that an interrupted receive delivered count once") {
  Book book;
  book.ledger->taken(0, {0, Command::write, 1, 0, 1000}, 0);
  book.ledger->publish(nbd::ledger::Reader{0, 0, 1000, 0, 1});
  const auto died_inside = book.recover_with([](Head& head) {
    head.receive_seq = head.reader_seq;
    head.receive.msg_len = 300;
  });
  REQUIRE(died_inside);
  CHECK(died_inside->slots.at(0).filling);
  CHECK(died_inside->slots.at(0).arrived == 300);
  const auto moved_nothing = book.recover_with([](Head& head) { head.receive_seq = head.reader_seq; });
  REQUIRE(moved_nothing);
  CHECK(moved_nothing->slots.at(0).arrived == 0);
  const auto said_so = book.recover_with([](Head& head) {
    head.receive_seq = head.reader_seq - 1;
    head.receive.msg_len = 300;
  });
  REQUIRE(said_so);
  CHECK(said_so->slots.at(0).arrived == 0);
}

TEST_CASE("bytes beyond a payload are input") {
  Book book;
  book.ledger->taken(0, {0, Command::write, 1, 0, 1000}, 0);
  book.ledger->publish(nbd::ledger::Reader{0, 0, 1000, 0, 1});
  const auto found = book.recover_with([](Head& head) {
    head.receive_seq = head.reader_seq;
    head.receive.msg_len = 1010;
  });
  REQUIRE(found);
  CHECK(found->slots.at(0).arrived == 1000);
  CHECK(found->input.size() == 10);
}

TEST_CASE("a death within the sending of replies leaves whole ones out, one in part, and the others owed") {
  for (const bool freed : {false, true}) {  // by the dying session, which did not come to say so
    Book book;
    for (std::uint16_t number = 1; number <= 3; ++number) {
      book.take(number, Command::read, 100, 4096u * number);
      book.ledger->answered(number, 0);
    }
    if (freed) book.ledger->out(2);
    const auto found = book.recover_with([](Head& head) {
      head.send_seq = head.writer_seq;
      head.send.msg_len = 116 + 50;
      head.sends = 3;
      head.sending[0] = 2, head.sending[1] = 1, head.sending[2] = 3;
    });
    REQUIRE(found);
    REQUIRE(found->slots.size() == 2);
    CHECK(found->slots[0].request.cookie == 101);
    CHECK(found->slots[0].sent == 50);
    CHECK(found->slots[1].request.cookie == 103);
    CHECK(found->slots[1].sent == 0);
    CHECK(found->slots[1].answered);
  }
}

TEST_CASE("a reply that was sent in part is done once the last call has sent its rest") {
  Book book;
  book.take(1, Command::read, 100, 4096);
  book.ledger->answered(1, 0);
  book.ledger->publish(nbd::ledger::Writer{2, 50});
  const auto found = book.recover_with([](Head& head) {
    head.send_seq = head.writer_seq;
    head.send.msg_len = 66;
    head.sends = 1;
    head.sending[0] = 1;
  });
  REQUIRE(found);
  CHECK(found->slots.empty());
}

TEST_CASE("a slot is not answered twice, whichever instruction was the last", "[failure:152]") {
  // What a link's server does after a call that sent one whole reply, step by step.
  Book book;
  book.take(1, Command::write, 512, 4096);
  book.ledger->answered(1, 0);
  const auto owed = [&](bool call) {
    const auto found = book.recover_with([&](Head& head) {
      head.sends = 1;
      head.sending[0] = 1;
      if (!call) return;
      head.send_seq = 0;
      head.send.msg_len = 16;
    });
    REQUIRE(found);
    return found->slots.size();
  };
  CHECK(owed(false) == 1);
  CHECK(owed(true) == 0);  // the call
  book.ledger->out(1);
  CHECK(owed(true) == 0);
  book.ledger->publish(nbd::ledger::Writer{});
  CHECK(owed(true) == 0);
  book.take(1, Command::flush, 0, 0);  // the next request in that slot
  CHECK(owed(true) == 1);
}

TEST_CASE("a ledger that is cut off anywhere is refused", "[failure:153]") {
  const Bytes all = Book().bytes();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{4096},
                                 nbd::ledger::kBytes - 1, nbd::ledger::kBytes - 4096}) {
    const Bytes part(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_FALSE(nbd::recover_outstanding(part, Book().expected));
  }
}

TEST_CASE("a ledger of another version, device, volume or shape is refused", "[failure:153]") {
  const Book book;
  CHECK(why(book.recover_with([](Head& head) { ++head.version; })).find("version 2 instead of 1") != std::string::npos);
  CHECK_FALSE(book.recover_with([](Head& head) { head.magic = 0; }));
  CHECK_FALSE(book.recover_with([](Head& head) { ++head.device; }));
  CHECK_FALSE(book.recover_with([](Head& head) { ++head.backend; }));
  CHECK_FALSE(book.recover_with([](Head& head) { ++head.slots; }));
  CHECK_FALSE(book.recover_with([](Head& head) { ++head.input; }));
}

TEST_CASE("a reader's account that does not add up is refused", "[failure:153]") {
  Book book;
  book.take(0, Command::write, 1000, 0);
  book.take(1, Command::read, 1000, 4096);
  using nbd::ledger::Reader;
  const auto with = [&](Reader reader) {
    return book.recover_with([&](Head& head) { head.reader[head.reader_seq % 2] = reader; });
  };
  REQUIRE(with({0, 20, 500, 0, 1}));
  CHECK_FALSE(with({21, 20, 0, 0, 0}));
  CHECK_FALSE(with({0, nbd::ledger::kInput + 1, 0, 0, 0}));
  CHECK_FALSE(with({0, 0, 500, 500, 1}));
  CHECK_FALSE(with({0, 0, 500, 0, 0}));
  CHECK_FALSE(with({0, 0, 1001, 0, 1}));
  CHECK_FALSE(with({0, 0, 500, 0, 2}));  // a read has no payload
  CHECK_FALSE(with({0, 0, 500, 0, 3}));  // nobody took that slot
  CHECK_FALSE(with({0, 0, 500, 0, 257}));
  CHECK_FALSE(book.recover_with([](Head& head) {
    head.receive_seq = head.reader_seq;
    head.receive.msg_len = nbd::ledger::kInput + 1;
  }));
}

TEST_CASE("a writer's account that does not add up is refused", "[failure:153]") {
  Book book;
  book.take(0, Command::read, 100, 0);
  book.ledger->answered(0, 0);
  book.take(1, Command::read, 100, 4096);
  using nbd::ledger::Writer;
  const auto with = [&](Writer writer) {
    return book.recover_with([&](Head& head) { head.writer[head.writer_seq % 2] = writer; });
  };
  REQUIRE(with({1, 115}));
  CHECK_FALSE(with({1, 116}));
  CHECK_FALSE(with({1, 0}));
  CHECK_FALSE(with({0, 5}));
  CHECK_FALSE(with({2, 5}));  // its reply was not known
  CHECK_FALSE(with({3, 5}));  // nobody took that slot
  CHECK_FALSE(with({257, 5}));
  const auto call = [&](std::uint32_t bytes, std::vector<std::uint16_t> slots, Writer before = {}) {
    return book.recover_with([&](Head& head) {
      head.writer[head.writer_seq % 2] = before;
      head.send_seq = head.writer_seq;
      head.send.msg_len = bytes;
      head.sends = static_cast<std::uint32_t>(slots.size());
      std::copy(slots.begin(), slots.end(), head.sending);
    });
  };
  REQUIRE(call(116, {0}));
  CHECK_FALSE(call(117, {0}));
  CHECK_FALSE(call(117, {0, 0}));
  CHECK_FALSE(call(117, {0, 1}));
  CHECK_FALSE(call(117, {0, 300}));
  CHECK_FALSE(call(10, {5}, {1, 5}));
  CHECK_FALSE(book.recover_with([](Head& head) {
    head.send_seq = head.writer_seq;
    head.send.msg_len = 1;
    head.sends = 129;
  }));
}

TEST_CASE("slots that contradict the stream, or each other, are refused", "[failure:153]") {
  Book book;
  book.take(0, Command::write, 1000, 0);
  book.take(1, Command::write, 1000, 4096);
  using nbd::ledger::Slot;
  REQUIRE(book.recover_with_slot(0, [](Slot&) {}));
  CHECK_FALSE(book.recover_with_slot(0, [](Slot& slot) { slot.state = static_cast<State>(3); }));
  CHECK_FALSE(book.recover_with_slot(0, [](Slot& slot) { slot.born = 1000; }));
  CHECK_FALSE(book.recover_with_slot(0, [](Slot& slot) { slot.offset = 1 << 20; }));
  CHECK_FALSE(book.recover_with_slot(0, [](Slot& slot) { slot.command = 9; }));
  CHECK_FALSE(book.recover_with_slot(0, [](Slot& slot) { slot.length = 0; }));
  CHECK_FALSE(book.recover_with_slot(0, [](Slot& slot) { slot.length = UINT32_MAX; }));
  CHECK_FALSE(book.recover_with_slot(0, [](Slot& slot) { slot.buffer = (1 << 20) - 999; }));
  CHECK_FALSE(book.recover_with_slot(0, [](Slot& slot) { slot.buffer = nbd::Arena::kElsewhere; }));
  CHECK_FALSE(book.recover_with_slot(0, [](Slot& slot) { slot.buffer = 4096 + 999; }));
  book.expected.arenas.clear();
  CHECK(why(book.recover_outstanding()).find("not at hand") != std::string::npos);
}

TEST_CASE("a write is refused where the device has become read-only") {
  Book book;
  book.take(0, Command::write, 1000, 0);
  book.expected.limits.read_only = true;
  CHECK_FALSE(book.recover_outstanding());
}

}  // namespace corbd::test
