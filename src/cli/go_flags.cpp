// Reads flags as Go's package flag does.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

#include "flags.hpp"

namespace corbd::cli {
namespace {

using Kind = Flag::Kind;

Error bad_flag(std::string text) { return {errc::invalid_argument, std::move(text)}; }

Error wrong(const Flag& flag, const std::string& value, const char* wanted) {
  return bad_flag("flag --" + std::string(flag.name) + " has the value '" + value + "': it takes " + wanted);
}

std::optional<bool> boolean(std::string_view text) {
  constexpr std::array<std::string_view, 6> yes{"1", "t", "T", "true", "TRUE", "True"},
      no{"0", "f", "F", "false", "FALSE", "False"};
  if (std::ranges::find(yes, text) != yes.end()) return true;
  if (std::ranges::find(no, text) != no.end()) return false;
  return std::nullopt;
}

std::optional<long> number(std::string_view text) {
  long value = 0;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

result<> check(const Flag& flag, const std::string& value) {
  switch (flag.kind) {
    case Kind::text:
      return {};
    case Kind::boolean:
      if (!boolean(value)) return wrong(flag, value, "true or false");
      return {};
    case Kind::number:
      if (!number(value)) return wrong(flag, value, "a whole number");
      return {};
    case Kind::duration:
      if (!parse_go_duration(value)) return wrong(flag, value, "a duration such as 60s");
      return {};
  }
  return {};
}

struct Assign {
  const Flag& flag;
  const std::string& value;
  Run& into;

  result<> operator()(std::monostate) const { return {}; }
  result<> operator()(std::string Run::* field) const {
    into.*field = value;
    return {};
  }
  result<> operator()(bool Run::* field) const {
    into.*field = *boolean(value);
    return {};
  }
  result<> operator()(std::optional<bool> Run::* field) const {
    into.*field = boolean(value);
    return {};
  }
  result<> operator()(int Run::* field) const { return within(field, flag.least, flag.most); }
  result<> operator()(std::uint16_t Run::* field) const { return within(field, 0, 65535); }
  result<> operator()(std::vector<std::string> Run::* field) const {
    (into.*field).push_back(value);
    return {};
  }
  template <class Number>
  result<> within(Number Run::* field, long least, long most) const {
    const long wanted = *number(value);
    if (wanted < least || wanted > most)
      return wrong(flag, value, ("a number from " + std::to_string(least) + " to " + std::to_string(most)).c_str());
    into.*field = static_cast<Number>(wanted);
    return {};
  }
};

/// Levenshtein distance in which two swapped neighbours count as one edit, because most misspelt words have just that.
std::size_t edits(std::string_view one, std::string_view other) {
  std::vector<std::size_t> before_last(other.size() + 1), last(other.size() + 1), row(other.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= one.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= other.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (one[i - 1] == other[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row.back();
}

Error unknown(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Flag& flag : flags()) known.push_back(flag.name);
  const std::string near = nearest(name, known);
  return bad_flag("flag --" + std::string(name) + " is not known" +
                  (near.empty() ? ": --help lists the known flags" : ": did you mean --" + near + "?"));
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string_view> known) {
  const auto place = std::ranges::min_element(known, {}, [&](std::string_view one) { return edits(word, one); });
  if (place == known.end() || edits(word, *place) > std::max<std::size_t>(2, word.size() / 3)) return {};
  return std::string(*place);
}

result<std::chrono::milliseconds> parse_go_duration(std::string_view text) {
  struct Unit {
    std::string_view name;
    double ms;
  };
  // Try the longer units first.
  constexpr std::array<Unit, 8> units{{{"ns", 1e-6},
                                       {"us", 1e-3},
                                       {"\u00b5s", 1e-3},
                                       {"\u03bcs", 1e-3},
                                       {"ms", 1},
                                       {"s", 1e3},
                                       {"m", 6e4},
                                       {"h", 3.6e6}}};
  const Error wrong = bad_flag("'" + std::string(text) + "' is not a duration such as 60s or 1m30s");
  if (text == "0") return std::chrono::milliseconds(0);
  if (text.empty()) return wrong;
  double total = 0;
  while (!text.empty()) {
    double value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
    if (failed != std::errc() || value < 0) return wrong;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const auto unit = std::ranges::find_if(units, [&](const Unit& one) { return text.starts_with(one.name); });
    if (unit == units.end()) return wrong;
    text.remove_prefix(unit->name.size());
    total += value * unit->ms;
  }
  constexpr double most = 1e12;
  if (!(total <= most)) return wrong;
  return std::chrono::milliseconds(std::llround(total));
}

result<> assign(const Flag& flag, const std::string& value, Run& into) {
  if (auto checked = check(flag, value); !checked) return checked;
  return std::visit(Assign{flag, value, into}, flag.field);
}

result<std::vector<Given>> parse_go(std::span<const std::string> arguments) {
  std::vector<Given> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view word = arguments[i];
    // A lone "-" or "--" ends Go's flags, and the rest would be ignored silently.
    if (!word.starts_with('-') || word == "-" || word == "--")
      return bad_flag(
          "'" + std::string(word) + "' is not a flag" +
          (given.empty() || given.back().flag->kind != Kind::boolean
               ? std::string(": every argument begins with --")
               : ": a boolean takes its value after '=', as in --" + std::string(given.back().flag->name) + "=true"));
    word.remove_prefix(word.starts_with("--") ? 2 : 1);
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const auto all = flags();
    const auto flag = std::ranges::find(all, name, &Flag::name);
    if (flag == all.end()) return unknown(name);
    Given one{&*flag, "true"};
    if (equals != word.npos)
      one.value = word.substr(equals + 1);
    else if (flag->kind != Kind::boolean && i + 1 == arguments.size())
      return bad_flag("flag --" + std::string(name) + " needs a value");
    else if (flag->kind != Kind::boolean)
      one.value = arguments[++i];
    if (auto checked = check(*flag, one.value); !checked) return checked.error();
    given.push_back(std::move(one));
  }
  return given;
}

}  // namespace corbd::cli
