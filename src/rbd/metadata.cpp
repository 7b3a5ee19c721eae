#include "metadata.hpp"

#include <algorithm>

#include "failure.hpp"
#include "header.hpp"

namespace corbd::rbd {

result<std::optional<std::string>> get_metadata(const ImageHandle& opened, const std::string& name) {
  std::string value(4096, '\0');
  int r = -ERANGE;
  for (int attempt = 0; attempt < 4 && r == -ERANGE; ++attempt) {
    std::size_t length = value.size();
    r = opened.connection.observe_result(rbd_metadata_get(opened.image, name.c_str(), value.data(), &length));
    if (r == -ERANGE) value.assign(length + 1, '\0');
  }
  if (r == -ENOENT) return std::optional<std::string>();
  if (r < 0) return failure("reading metadata " + name + " of image " + opened.text(), r);
  return std::optional<std::string>(value.c_str());
}

// Names are sorted, so those with one prefix stand together. librbd lists from behind a name.
result<std::map<std::string, std::string>> list_metadata(const ImageHandle& opened, const std::string& prefix) {
  constexpr std::uint64_t kPage = 64;
  std::map<std::string, std::string> found;
  std::string start = prefix;
  for (;;) {
    std::string names(8192, '\0'), values(8192, '\0');
    int r = -ERANGE;
    std::size_t names_size = 0, values_size = 0;
    for (int attempt = 0; attempt < 4 && r == -ERANGE; ++attempt) {
      names.resize(std::max(names.size(), names_size)), values.resize(std::max(values.size(), values_size));
      names_size = names.size(), values_size = values.size();
      r = opened.connection.observe_result(rbd_metadata_list(opened.image, start.c_str(), kPage, names.data(),
                                                             &names_size, values.data(), &values_size));
    }
    if (r < 0) return failure("listing metadata of image " + opened.text(), r);
    std::size_t at = 0, value_at = 0, count = 0;
    for (; at < names_size && value_at < values_size; ++count) {
      const std::string name(names.c_str() + at), value(values.c_str() + value_at);
      at += name.size() + 1, value_at += value.size() + 1;
      start = name;
      if (!name.starts_with(prefix)) return found;
      found[name] = value;
    }
    if (count < kPage) return found;
  }
}

result<> write_metadata(const ImageHandle& opened, const std::string& name, const std::optional<std::string>& value,
                        bool locked) {
  if (!locked) return write_header_metadata(opened, name, value);
  const int r = opened.connection.observe_result(value ? rbd_metadata_set(opened.image, name.c_str(), value->c_str())
                                                       : rbd_metadata_remove(opened.image, name.c_str()));
  if (r == -ENOENT && !value) return {};
  if (r < 0) return failure("writing metadata " + name + " of image " + opened.text(), r);
  return {};
}

}  // namespace corbd::rbd
