// Checks a volume's own mkfsOptions. Root's mkfs reads them, but a user who registers a volume with Nomad is not the
// node's administrator.
#include "mkfs_options.hpp"

#include <algorithm>
#include <string_view>

#include "corbd/core/text.hpp"
#include "corbd/host/values.hpp"
#include "filesystem_types.hpp"

namespace corbd::host {
namespace {

constexpr const char* kWayOut =
    ": leave it out, or make the filesystem by hand. The agent's --mkfs-options takes every option, for all volumes";

/// Reads the options as mkfs does, by getopt_long(3).
class Reader {
 public:
  Reader(const FilesystemType& type, std::vector<std::string> words) : type_(type), words_(std::move(words)) {}

  result<> read() {
    for (; at_ < words_.size(); ++at_)
      if (auto read = read_word(words_[at_]); !read) return read;
    return {};
  }

 private:
  Error refused(std::string_view what, std::string_view why) const {
    return {errc::invalid_argument,
            "mkfsOptions: " + printable(what) + " " + std::string(why) + "mkfs." + std::string(type_.name) + kWayOut};
  }
  Error not_allowed(const std::string& option) const {
    return refused(option, "is not among the options that a volume may give ");
  }

  result<> read_word(std::string_view word) {
    if (word.starts_with("--")) return read_long(word.substr(2));
    if (word.size() > 1 && word.front() == '-') return read_letters(word.substr(1));
    return refused("'" + std::string(word) + "'",
                   "is neither an option nor the value of one, so it would name a device to ");
  }

  /// Reads "label=x" or "label". Abbreviations are refused: another release may know another word that begins so.
  result<> read_long(std::string_view word) {
    const auto name = word.substr(0, word.find('='));
    const std::string option = "--" + std::string(name);
    const bool has_value = std::ranges::find(type_.mkfs.words, std::string(name) + ":") != type_.mkfs.words.end();
    if (!has_value && std::ranges::find(type_.mkfs.words, name) == type_.mkfs.words.end()) return not_allowed(option);
    if (word.size() == name.size()) return has_value ? read_next_value(option) : result<>();
    return has_value ? check_value(option, word.substr(name.size() + 1)) : result<>(not_allowed(option + "=..."));
  }

  /// Reads "Fm0": F, and m with its value.
  result<> read_letters(std::string_view letters) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const std::string option = {'-', letters[i]};
      const auto known = letters[i] == ':' ? std::string_view::npos : type_.mkfs.letters.find(letters[i]);
      if (known == std::string_view::npos) return not_allowed(option);
      if (!type_.mkfs.letters.substr(known + 1).starts_with(':')) continue;
      return i + 1 < letters.size() ? check_value(option, letters.substr(i + 1)) : read_next_value(option);
    }
    return {};
  }

  result<> read_next_value(const std::string& option) {
    if (++at_ == words_.size()) return refused(option, "lacks its value, so it would take the next argument of ");
    return check_value(option, words_[at_]);
  }

  result<> check_value(const std::string& option, std::string_view value) const {
    if (value.find('/') != value.npos)
      return refused(option + " " + std::string(value), "names a path, and a volume may not name one to ");
    if (std::ranges::any_of(value, [](unsigned char c) { return c <= ' ' || c == 0x7f; }))
      return refused(option, "has a value with a blank or a control character for ");
    for (const auto part : pieces(value, ','))
      for (const auto& [of, name] : type_.mkfs.refused)
        if (of == option && part.substr(0, part.find('=')) == name)
          return not_allowed(option + " " + std::string(name));
    return {};
  }

  const FilesystemType& type_;
  std::vector<std::string> words_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<std::string> arguments_of(const std::string& options) {
  std::vector<std::string> parts;
  for (const auto part : pieces(options, ' ')) parts.emplace_back(part);
  return parts;
}

result<> check_mkfs_options(const std::string& fstype, const std::string& options) {
  const auto* type = filesystem_type(fstype);
  if (options.empty() || type == nullptr) return {};
  return Reader(*type, arguments_of(options)).read();
}

}  // namespace corbd::host
