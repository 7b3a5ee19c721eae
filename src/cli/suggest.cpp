#include "suggest.hpp"

#include <vector>

#include "flags.hpp"

namespace corbd::cli {
namespace {

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* sub : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    names.push_back(sub->get_name());
  return names;
}

/// The flags, with their dashes.
std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options([](const CLI::Option* one) { return !one->get_group().empty(); }))
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string no_such(const std::string& where, const char* kind, const std::string& word,
                    const std::vector<std::string>& known) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::string near = nearest(word, views);
  return where + " has no " + kind + " '" + word +
         "': " + (near.empty() ? "`" + where + " --help` lists those that it has" : "did you mean '" + near + "'?");
}

/// A word that begins with a dash, taken apart.
struct Dashed {
  std::string flag;           ///< "--output", "-o"
  bool value_inside = false;  ///< "--output=json", "-ojson"
};

Dashed dashed(const std::string& word) {
  if (!word.starts_with("--")) return {word.substr(0, 2), word.size() > 2};
  const auto equals = word.find('=');
  return {word.substr(0, equals), equals != word.npos};
}

/// Returns the command of that name; null: there is none.
const CLI::App* below(const CLI::App& command, const std::string& name) {
  for (const auto* sub : command.get_subcommands([](const CLI::App*) { return true; }))
    if (sub->get_name() == name) return sub;
  return nullptr;
}

bool has_commands(const CLI::App& command) {
  return !command.get_subcommands([](const CLI::App*) { return true; }).empty();
}

}  // namespace

std::string unknown_word(const CLI::App& app, std::span<const std::string> words) {
  const CLI::App* command = &app;
  std::string where = "corbd";
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::string& word = words[i];
    if (word.size() > 1 && word.starts_with('-')) {
      const auto [flag, value_inside] = dashed(word);
      const auto* option = command->get_option_no_throw(flag);
      if (option == nullptr) return no_such(where, "flag", flag.starts_with("--") ? flag : word, flags_of(*command));
      // The flag's value is the next word, unless it is in this one.
      if (option->get_items_expected_min() > 0 && !value_inside) ++i;
    } else if (has_commands(*command)) {
      const auto* next = below(*command, word);
      if (next == nullptr) return no_such(where, "command", word, commands_of(*command));
      command = next;
      where += " " + word;
    }
  }
  return {};
}

}  // namespace corbd::cli
