#include "corbd/core/fields_json.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "support/catch.hpp"

using namespace corbd;

namespace {

enum class Colour { red, blue };

struct Wheel {
  std::uint32_t spokes = 0;
  static constexpr std::tuple fields{fields::required("spokes", &Wheel::spokes)};
  bool operator==(const Wheel&) const = default;
};

struct Cart {
  std::string name;
  std::optional<std::uint64_t> load = std::nullopt;
  std::vector<Wheel> wheels = {};
  std::map<std::string, std::string> labels = {};
  Colour colour = Colour::red;
  bool sold = false;
  std::chrono::sys_seconds since = {};
  static constexpr std::tuple fields{fields::required("name", &Cart::name),     fields::rare("load", &Cart::load),
                                     fields::required("wheels", &Cart::wheels), fields::rare("labels", &Cart::labels),
                                     fields::added("colour", &Cart::colour),    fields::rare("sold", &Cart::sold),
                                     fields::rare("since", &Cart::since)};
  bool operator==(const Cart&) const = default;
};

struct Sail {
  std::string cloth;
  bool operator==(const Sail&) const = default;
};
struct Engine {
  int power = 0;
  bool operator==(const Engine&) const = default;
};
struct Drive {
  std::variant<Sail, Engine> by;
  std::string maker = {};
  bool operator==(const Drive&) const = default;
};
struct Size {
  int length = 0, width = 0;
  bool operator==(const Size&) const = default;
};
struct Charter {
  std::string guest;
  bool operator==(const Charter&) const = default;
};

struct Boat {
  Size size;
  std::optional<Drive> drive;
  std::optional<Charter> charter;
  static constexpr std::tuple fields{fields::required("length", &Boat::size, &Size::length),
                                     fields::whether("chartered", &Boat::charter),
                                     fields::required("cloth", &Boat::drive, &Drive::by, &Sail::cloth),
                                     fields::required("power", &Boat::drive, &Drive::by, &Engine::power),
                                     fields::rare("maker", &Boat::drive, &Drive::maker),
                                     fields::rare("guest", &Boat::charter, &Charter::guest),
                                     fields::rare("width", &Boat::size, &Size::width)};
  bool operator==(const Boat&) const = default;
};

}  // namespace

namespace corbd::fields {

template <>
struct Written<Colour> {
  static std::string to(Colour colour) { return colour == Colour::red ? "red" : "blue"; }
  static result<Colour> from(const std::string& text) {
    if (text == "red") return Colour::red;
    if (text == "blue") return Colour::blue;
    return Error{errc::internal, "no colour"};
  }
};

}  // namespace corbd::fields

namespace {

const Cart kCart{
    "a", 7, {{8}, {6}}, {{"b", "c"}}, Colour::blue, true, std::chrono::sys_seconds(std::chrono::seconds(9))};

std::string text_of(const Cart& cart) { return boost::json::serialize(fields::to_json(cart)); }

std::string mistake(std::string_view text, const fields::Manner& manner = {}) {
  const auto read = fields::from_text<Cart>(text, "cart", manner);
  REQUIRE(!read);
  CHECK(read.error().code == manner.code);
  return read.error().text;
}

}  // namespace

TEST_CASE("each field of a table is written and read again") {
  CHECK(fields::from_text<Cart>(text_of(kCart), "cart").value() == kCart);
}

TEST_CASE("fields are written in the order of their table, and rare ones unless they have their defaults") {
  CHECK(
      text_of(kCart) ==
      R"({"name":"a","load":7,"wheels":[{"spokes":8},{"spokes":6}],"labels":{"b":"c"},"colour":"blue","sold":true,"since":9})");
  CHECK(text_of({.name = "a"}) == R"({"name":"a","wheels":[],"colour":"red"})");
}

TEST_CASE("a text without the fields that may be missing has their defaults, and unknown keys are passed over") {
  CHECK(fields::from_text<Cart>(R"({"name":"a","wheels":[],"later":{}})", "cart").value() == Cart{.name = "a"});
}

TEST_CASE("a mistake names its place and what it should be") {
  CHECK(mistake("[]") == "cart: not a JSON object");
  CHECK(mistake(R"({"wheels":[]})") == "cart.name: missing");
  CHECK(mistake(R"({"name":1,"wheels":[]})") == "cart.name: not a text");
  CHECK(mistake(R"({"name":"","wheels":{}})") == "cart.wheels: not a list");
  CHECK(mistake(R"({"name":"","wheels":[{"spokes":1},2]})") == "cart.wheels[1]: not an object");
  CHECK(mistake(R"({"name":"","wheels":[{"spokes":1},{}]})") == "cart.wheels[1].spokes: missing");
  CHECK(mistake(R"({"name":"","wheels":[],"sold":1})") == "cart.sold: neither true nor false");
  CHECK(mistake(R"({"name":"","wheels":[],"labels":{"x":1}})") == "cart.labels.x: not a text");
  CHECK(mistake(R"({"name":"","wheels":[],"labels":[]})") == "cart.labels: not an object");
  CHECK(mistake(R"({"name":"","wheels":[],"colour":"green"})") == "cart.colour: no colour");
}

TEST_CASE("a field may be inside another member: its key stands in the object of the outer struct") {
  const auto text = [](const Boat& boat) { return boost::json::serialize(fields::to_json(boat)); };
  const auto is = [&](const Boat& boat, const std::string& written) {
    CHECK(text(boat) == written);
    CHECK(fields::from_text<Boat>(written, "boat").value() == boat);
  };
  is({{3, 2}, {}, {}}, R"({"length":3,"chartered":false,"width":2})");
  is({{3, 0}, Drive{Sail{""}}, {}}, R"({"length":3,"chartered":false,"cloth":""})");
  is({{3, 0}, Drive{Engine{7}, "a"}, {}}, R"({"length":3,"chartered":false,"power":7,"maker":"a"})");
  is({{3, 0}, {}, Charter{""}}, R"({"length":3,"chartered":true})");
  is({{3, 0}, {}, Charter{"b"}}, R"({"length":3,"chartered":true,"guest":"b"})");
}

TEST_CASE("a key inside an optional that is not there is passed over, and no other key of it is missed") {
  const auto read = [](const char* text) { return fields::from_text<Boat>(text, "boat"); };
  CHECK(read(R"({"length":3,"maker":"a","guest":"b"})").value() == Boat{{3, 0}, {}, {}});
  CHECK(read("{}").error().text == "boat.length: missing");
  CHECK(read(R"({"length":3,"power":"x"})").error().text == "boat.power: not a number that fits");
  CHECK(read(R"({"length":3,"chartered":1})").error().text == "boat.chartered: neither true nor false");
}

TEST_CASE("a number that its member cannot hold is a mistake") {
  for (const auto* number : {"-1", "4294967296", "1.5", "\"1\"", "null"})
    CHECK(mistake(R"({"name":"","wheels":[{"spokes":)" + std::string(number) + "}]}") ==
          "cart.wheels[0].spokes: not a number that fits");
}

TEST_CASE("a mistake has the code of its reader") { mistake("{}", {errc::invalid_argument}); }

TEST_CASE("in Go's manner a key matches in any case, the last one counts, and null counts as absent") {
  const fields::Manner go{.go = true};
  CHECK(fields::from_text<Cart>(R"({"NAME":"a","name":"b","Name":null,"wheels":[],"sold":null})", "cart", go).value() ==
        Cart{.name = "b"});
  CHECK(mistake(R"({"Name":"a","wheels":[]})") == "cart.name: missing");
}

TEST_CASE("a file begins with its version, and one of a later version is not read") {
  const auto file = fields::to_file(Cart{.name = "a"}, 2);
  CHECK(file == "{\"version\":2,\"name\":\"a\",\"wheels\":[],\"colour\":\"red\"}\n");
  const auto object = fields::parse_file(file, "cart", 2);
  REQUIRE(object);
  CHECK(fields::from_json<Cart>(*object, "cart").value() == Cart{.name = "a"});
  const auto newer = fields::parse_file(file, "cart", 1);
  REQUIRE(!newer);
  CHECK(newer.error().code == errc::state_newer);
  CHECK(newer.error().text == "cart version 2, this agent reads 1");
}
