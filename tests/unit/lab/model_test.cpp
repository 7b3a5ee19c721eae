// The model of corbd-writer: an image in memory that is right, and the same with faults that are known.
#include "../../lab/writer/model.hpp"

#include <algorithm>
#include <functional>
#include <optional>

#include "support/helpers.hpp"

using namespace corbd::writer;

namespace {

constexpr std::uint64_t kSize = 8 << 20;
using Data = std::vector<Sector>;
const Sector kZeroed{};

/// An image in memory. Of a unit of an object that a discard does not cover whole, a coin decides for each sector.
class Memory {
 public:
  explicit Memory(const Layout& layout = {}) : layout_(layout), sectors_(kSize / sector_size, kZeroed) {}
  virtual ~Memory() = default;

  virtual void perform(const Request& request, Data& data) {
    switch (request.kind) {
      case Kind::read:
        std::copy_n(at(request.offset), request.length / sector_size, data.begin());
        break;
      case Kind::write:
        std::copy_n(data.begin(), request.length / sector_size, at(request.offset));
        break;
      case Kind::discard:
        discard(request);
        break;
      case Kind::sync:
        break;
      default:
        std::fill_n(at(request.offset), request.length / sector_size, kZeroed);
    }
  }

 private:
  std::vector<Sector>::iterator at(std::uint64_t offset) {
    return sectors_.begin() + static_cast<std::ptrdiff_t>(offset / sector_size);
  }

  void discard(const Request& request) {
    const std::uint64_t unit = std::min<std::uint64_t>(64 << 10, layout_.object_size);
    for (std::uint64_t object = 0; object <= layout_.place(kSize - 1).object + layout_.stripe_count; ++object)
      for (std::uint64_t offset = 0; offset < layout_.object_size; offset += unit) {
        std::vector<std::uint64_t> covered;
        for (std::uint64_t i = offset; i < offset + unit; i += sector_size)
          if (const auto byte = byte_at(object, i); request.offset <= byte && byte < request.end())
            covered.push_back(byte);
        for (const std::uint64_t byte : covered)
          if (covered.size() == unit / sector_size || coin_() % 2) *at(byte) = kZeroed;
      }
  }

  /// The other way round than Layout::place().
  std::uint64_t byte_at(std::uint64_t object, std::uint64_t offset) const {
    const std::uint64_t set = object / layout_.stripe_count, column = object % layout_.stripe_count;
    const std::uint64_t stripe = set * (layout_.object_size / layout_.stripe_unit) + offset / layout_.stripe_unit;
    return (stripe * layout_.stripe_count + column) * layout_.stripe_unit + offset % layout_.stripe_unit;
  }

  Layout layout_;
  std::vector<Sector> sectors_;
  std::mt19937 coin_{7};
};

/// Plays so many requests of a seed. The first complaint, and a read of all at the end.
std::string play(Memory& image, std::uint64_t seed, int requests, const Layout& layout = {}) {
  Requests from(seed, 1, kSize, layout);
  Model model(std::vector<Model::Content>(kSize / sector_size), layout);
  Data data(kSize / sector_size);
  for (int i = 0; i < requests; ++i) {
    const Request request = from.next();
    if (request.kind == Kind::write) fill(request, data);
    image.perform(request, data);
    if (const auto wrong = model.ended(request, data); !wrong.empty()) return wrong;
  }
  const Request all{static_cast<std::uint64_t>(requests) + 1, Kind::read, 0, kSize};
  image.perform(all, data);
  return model.ended(all, data);
}

/// Does to some requests what `fault` says instead of what it should.
class Faulty : public Memory {
 public:
  /// Whether it did something instead.
  using Fault = std::function<bool(Faulty&, const Request&, Data&)>;
  explicit Faulty(Fault fault) : fault_(std::move(fault)) {}
  void perform(const Request& request, Data& data) override {
    last = request.number;
    if (!fault_(*this, request, data)) Memory::perform(request, data);
  }
  std::uint64_t last = 0;  ///< request
  void right(const Request& request, Data& data) { Memory::perform(request, data); }

 private:
  Fault fault_;
};

/// How many of 20 seeds find it. A single fault may be overwritten before anybody reads it, so it happens several
/// times.
int told_of_20(const std::function<Faulty::Fault()>& make) {
  int told = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Faulty image(make());
    told += !play(image, seed, 300).empty();
  }
  return told;
}

/// The same for what happens to every third write.
int told_of_20(const std::function<void(Faulty&, Request, Data&)>& third_write) {
  return told_of_20([&]() -> Faulty::Fault {
    return [&, writes = 0](Faulty& image, const Request& request, Data& data) mutable {
      if (request.kind != Kind::write || ++writes % 3 != 0) return false;
      third_write(image, request, data);
      return true;
    };
  });
}

Model one_write(Request& write, Data& data, const Layout& layout = {}) {
  Model model(std::vector<Model::Content>(kSize / sector_size), layout);
  write = {1, Kind::write, 0, 1 << 20};
  fill(write, data);
  REQUIRE(model.ended(write, data).empty());
  return model;
}

struct Written {
  Request write;
  Data data{(1 << 20) / sector_size};
  Model model = one_write(write, data);
  std::string read(std::uint64_t offset, const Sector& sector) { return model.check(offset, {&sector, 1}); }
};

}  // namespace

TEST_CASE("a seed, a first number, a size and a layout make the same requests each time, and another seed others") {
  const auto some = [](std::uint64_t seed) {
    Requests from(seed, 10, kSize, {});
    std::string text;
    for (int i = 0; i < 100; ++i) text += from.next().text() + "\n";
    return text;
  };
  CHECK(some(1) == some(1));
  CHECK(some(1) != some(2));
  CHECK(some(1).starts_with("10 ("));
}

TEST_CASE("requests lie inside the image, are of every kind, and many touch an earlier one or the image's end") {
  for (const std::uint64_t size : {sector_size, std::uint64_t{4097} * sector_size, std::uint64_t{64} << 20}) {
    Requests from(3, 1, size, {});
    std::map<Kind, int> kinds;
    std::vector<Request> earlier;
    int ends = 0, touching = 0;
    for (std::uint64_t number = 1; number <= 2000; ++number) {
      const Request one = from.next();
      REQUIRE(one.number == number);
      REQUIRE(one.end() <= size);
      REQUIRE(one.offset % sector_size + one.length % sector_size == 0);
      REQUIRE((one.length > 0) == (one.kind != Kind::sync));
      ++kinds[one.kind];
      ends += one.end() == size;
      const auto recent = std::span(earlier).last(std::min<std::size_t>(earlier.size(), 16));
      touching += std::ranges::any_of(recent, [&](const Request& other) { return one.touches(other); });
      earlier.push_back(one);
    }
    CHECK(kinds.size() == 7);
    CHECK(ends > 50);
    CHECK(touching > 500);
  }
}

TEST_CASE("an image that keeps every promise is right, however its bytes lie in objects") {
  for (const Layout& layout : {Layout{}, Layout{1 << 20, 64 << 10, 4}, Layout{1 << 20, 16 << 10, 3},
                               Layout{32 << 10, 32 << 10, 1}, Layout{2 << 20, 256 << 10, 5}})
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      Memory image(layout);
      INFO("stripe count " << layout.stripe_count << ", seed " << seed);
      CHECK(play(image, seed, 150, layout) == "");
    }
}

TEST_CASE("a byte lies where Ceph's striping puts it") {
  CHECK(Layout{}.place(9 << 20).object == 2);
  CHECK(Layout{}.place(9 << 20).offset == 1 << 20);
  // Objects of two units, three of them in a set: units 0 to 5 are those of the first set, 0 and 3 in its first object.
  const Layout striped{128 << 10, 64 << 10, 3};
  const auto at = [&](std::uint64_t unit) { return striped.place((unit << 16) + 5); };
  CHECK(at(0).object == 0);
  CHECK(at(1).object == 1);
  CHECK(at(3).object == 0);
  CHECK(at(3).offset == (64 << 10) + 5);
  CHECK(at(5).object == 2);
  CHECK(at(6).object == 3);
  CHECK(at(6).offset == 5);
}

TEST_CASE("lost discards are told, also if it is one of three") {
  CHECK(told_of_20([]() -> Faulty::Fault {
          return [discards = 0](Faulty&, const Request& request, Data&) mutable {
            return request.kind == Kind::discard && ++discards % 3 == 0;
          };
        }) == 20);
}

TEST_CASE("lost zeroes are told") {
  CHECK(told_of_20([]() -> Faulty::Fault {
          return [](Faulty&, const Request& request, Data&) {
            return request.kind >= Kind::zero && request.kind <= Kind::punch_hole;
          };
        }) == 20);
}

TEST_CASE("lost writes, torn writes and writes at a wrong place are told") {
  CHECK(told_of_20([](Faulty&, const Request&, Data&) {}) == 20);
  CHECK(told_of_20([](Faulty& image, Request request, Data& data) {
          request.length -= sector_size;
          image.right(request, data);
        }) == 20);
  CHECK(told_of_20([](Faulty& image, Request request, Data& data) {
          request.offset = request.offset == 0 ? sector_size : request.offset - sector_size;
          request.length = std::min(request.length, kSize - request.offset);
          image.right(request, data);
        }) == 20);
}

TEST_CASE("a stale read is told at once") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Sector before = kZeroed;
    std::uint64_t stale = 0;
    // One sector of each read shows what it held before its last write.
    std::map<std::uint64_t, Sector> older;
    Faulty image([&](Faulty& real, const Request& request, Data& data) {
      if (request.kind == Kind::write) {
        Data old(request.length / sector_size);
        real.right({0, Kind::read, request.offset, request.length}, old);
        older[request.offset] = old.front();
      }
      if (request.kind != Kind::read || stale != 0) return false;
      real.right(request, data);
      const auto known = older.lower_bound(request.offset);
      if (known == older.end() || known->first >= request.end()) return true;
      Sector& shown = data[(known->first - request.offset) / sector_size];
      before = std::exchange(shown, known->second);
      if (std::memcmp(&before, &shown, sector_size) != 0) stale = request.number;
      return true;
    });
    const std::string wrong = play(image, seed, 300);
    CHECK(stale > 0);
    CHECK(wrong.starts_with("at "));
    CHECK(image.last == stale);
  }
}

TEST_CASE("a late write, which comes once more after a newer one, is told") {
  CHECK(told_of_20([]() -> Faulty::Fault {
          return [first = std::optional<std::pair<Request, Data>>()](Faulty& image, const Request& request,
                                                                     Data& data) mutable {
            if (request.kind != Kind::write) return false;
            image.right(request, data);
            if (first && request.touches(first->first)) image.right(first->first, first->second);
            first = {request, data};
            return true;
          };
        }) == 20);
}

TEST_CASE("what a discard covers only in part holds its old bytes or zeroes, and nothing else") {
  Written scene;
  const Sector old = scene.data[0], other = scene.data[1];
  REQUIRE(scene.model.ended({2, Kind::discard, 0, 32 << 10}, {}).empty());
  CHECK(scene.read(0, other) != "");
  CHECK(scene.read(0, kZeroed) == "");
  CHECK(scene.read(512, other) == "");
  SECTION("once read as zeroes it stays zeroes") { CHECK(scene.read(0, old) != ""); }
  SECTION("once read as old bytes it keeps them") { CHECK(scene.read(512, kZeroed) != ""); }
  SECTION("a write over it ends the doubt") {
    const Request again{3, Kind::write, 1024, 512};
    Data fresh(1);
    fill(again, fresh);
    REQUIRE(scene.model.ended(again, fresh).empty());
    CHECK(scene.read(1024, kZeroed) != "");
    CHECK(scene.read(1024, fresh[0]) == "");
  }
}

TEST_CASE("what a discard covers whole reads as zeroes, and what lies beside it is untouched") {
  Written scene;
  REQUIRE(scene.model.ended({2, Kind::discard, 32 << 10, 128 << 10}, {}).empty());
  CHECK(scene.read(64 << 10, scene.data[128]) != "");
  CHECK(scene.read(64 << 10, kZeroed) == "");
  CHECK(scene.read(160 << 10, kZeroed) != "");
  CHECK(scene.read((32 << 10) - 512, kZeroed) != "");
}

TEST_CASE("a difference names the byte, what was expected, what was found, and both contents") {
  Written scene;
  CHECK(scene.read(1024, kZeroed).starts_with("at 1024: expected write 1: 74 72 77 64 62 72 6f 63"));
  CHECK(scene.read(1024, kZeroed).ends_with("found zeroes: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"));
  CHECK(scene.read(1024, scene.data[3]).find("found write 1 of offset 1536") != std::string::npos);
  Sector torn = scene.data[2];
  torn.body[5] ^= 1;
  CHECK(scene.read(1024, torn).starts_with("at 1096: expected write 1:"));
  CHECK(scene.read(1024, torn).find("found bytes that no write has made") != std::string::npos);
}
