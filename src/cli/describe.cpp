#include "describe.hpp"

#include <algorithm>
#include <functional>

namespace corbd::cli {
namespace {

/// A command that --help shows, and the words that lead to it.
struct Shown {
  std::string path;  ///< "fence add"; empty for the program
  const CLI::App* command;
};

std::vector<Shown> shown(const CLI::App& app) {
  std::vector<Shown> all{{"", &app}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Shown parent = all[i];
    for (const auto* sub :
         parent.command->get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
      all.push_back({parent.path.empty() ? sub->get_name() : parent.path + " " + sub->get_name(), sub});
  }
  return all;
}

std::vector<const CLI::Option*> options(const CLI::App& command) {
  return command.get_options([](const CLI::Option* one) { return !one->get_group().empty(); });
}

bool is_positional(const CLI::Option& option) { return option.get_lnames().empty() && option.get_snames().empty(); }

/// "-o", "--output".
std::vector<std::string> names(const CLI::Option& option) {
  std::vector<std::string> all;
  for (const auto& name : option.get_snames()) all.push_back("-" + name);
  for (const auto& name : option.get_lnames()) all.push_back("--" + name);
  return all;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// The values of a flag that takes one of a few. CLI11 shows them in its type: "TEXT:{text,json}".
std::vector<std::string> choices(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const auto begin = type.find('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

std::string page_name(const std::string& path) {
  std::string name = path.empty() ? "corbd" : "corbd " + path;
  std::ranges::replace(name, ' ', '-');
  return name;
}

/// Escapes text for man(7): a line that begins with a dot or a quote would be a request, and "-" would become a hyphen,
/// which nobody can type.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '\\')
      out += "\\e";
    else if (letter == '-')
      out += "\\-";
    else if ((letter == '.' || letter == '\'') && (out.empty() || out.back() == '\n'))
      (out += "\\&") += letter;
    else
      out += letter;
  }
  return out;
}

std::string value_of(const CLI::Option& option) {
  if (const auto some = choices(option); !some.empty()) return CLI::detail::join(some, "|");
  std::string name = option.get_type_name();
  return name.substr(0, name.find_first_of(" :"));
}

std::string synopsis(const Shown& of) {
  std::string line = ".B corbd" + (of.path.empty() ? "" : " " + escaped(of.path)) + "\n";
  if (!of.command->get_subcommands({}).empty()) line += ".I COMMAND\n";
  bool has_flags = false;
  for (const auto* option : options(*of.command)) {
    has_flags |= !is_positional(*option);
    if (!is_positional(*option)) continue;
    std::string name = option->get_name();
    std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::toupper(letter); });
    line += option->get_required() ? ".I " + escaped(name) + "\n" : "[\n.I " + escaped(name) + "\n]\n";
  }
  if (has_flags) line += "[\n.I OPTIONS\n]\n";
  return line;
}

std::string described(const CLI::Option& option) {
  std::string head;
  if (is_positional(option)) {
    head = ".I " + escaped(option.get_name());
  } else {
    head = ".B " + escaped(CLI::detail::join(names(option), ", "));
    if (takes_value(option)) head += " " + escaped(value_of(option));
  }
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) text += " [" + option.get_default_str() + "]";
  if (!option.get_envname().empty()) text += " (environment: " + option.get_envname() + ")";
  return ".TP\n" + head + "\n" + escaped(text) + "\n";
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::string tables;
  for (const auto& [path, command] : shown(app)) {
    std::vector<std::string> subcommands, flags;
    for (const auto* sub : command->get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
      subcommands.push_back(sub->get_name());
    for (const auto* option : options(*command)) {
      const auto of_option = names(*option);
      flags.insert(flags.end(), of_option.begin(), of_option.end());
      const auto some = choices(*option);
      for (const auto& name : of_option.empty() && !some.empty() ? std::vector<std::string>{"<>"} : of_option)
        if (takes_value(*option))
          tables += "_corbd_values['" + path + " " + name + "']='" +
                    (some.empty() ? "*" : CLI::detail::join(some, " ")) + "'\n";
    }
    tables += "_corbd_commands['/" + path + "']='" + CLI::detail::join(subcommands, " ") + "'\n";
    tables += "_corbd_flags['/" + path + "']='" + CLI::detail::join(flags, " ") + "'\n";
  }
  return R"(# Completion of corbd's command line for bash.
declare -A _corbd_commands _corbd_flags _corbd_values
)" + tables +
         R"(_corbd() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path='' i values
  for ((i = 1; i < COMP_CWORD; i++)); do
    case " ${_corbd_commands["/$path"]-} " in *" ${COMP_WORDS[i]} "*) path="${path:+$path }${COMP_WORDS[i]}" ;; esac
  done
  values=${_corbd_values["$path $before"]-}
  [ -n "$values" ] || { [ "${word#-}" != "$word" ] || values=${_corbd_values["$path <>"]-}; }
  case $values in
    '*') mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    ?*) mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word") ;;
    *)
      if [ "${word#-}" != "$word" ]; then
        mapfile -t COMPREPLY < <(compgen -W "${_corbd_flags["/$path"]-}" -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -W "${_corbd_commands["/$path"]-}" -- "$word")
      fi ;;
  esac
}
complete -o default -F _corbd corbd
)";
}

std::vector<std::string> man_pages(const CLI::App& app) {
  std::vector<std::string> pages;
  for (const auto& one : shown(app)) pages.push_back(page_name(one.path));
  return pages;
}

std::string man_page(const CLI::App& app, const std::string& page, const std::string& version) {
  const auto all = shown(app);
  const auto found = std::ranges::find(all, page, [](const Shown& one) { return page_name(one.path); });
  if (found == all.end()) return {};
  const CLI::App& command = *found->command;
  std::string out = ".TH " + escaped(page) + " 8 \"\" \"" + escaped(version) + "\"\n.SH NAME\n" + escaped(page) +
                    " \\- " + escaped(command.get_description()) + "\n.SH SYNOPSIS\n" + synopsis(*found);
  const std::string prefix = found->path.empty() ? "" : found->path + " ";
  std::string below;
  for (const auto& [path, sub] : all)
    if (!path.empty() && path.starts_with(prefix) && path.find(' ', prefix.size()) == std::string::npos &&
        path.size() > prefix.size())
      below += ".TP\n.BR " + escaped(page_name(path)) + " (8)\n" + escaped(sub->get_description()) + "\n";
  if (!below.empty()) out += ".SH COMMANDS\n" + below;
  std::string flags;
  for (const auto* option : options(command)) flags += described(*option);
  if (!flags.empty()) out += ".SH OPTIONS\n" + flags;
  if (!command.get_footer().empty()) out += ".SH NOTES\n" + escaped(command.get_footer()) + "\n";
  if (!found->path.empty()) out += ".SH SEE ALSO\n.BR corbd (8)\n";
  return out;
}

}  // namespace corbd::cli
