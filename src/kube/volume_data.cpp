#include "corbd/kube/volume_data.hpp"

#include <boost/json/parse.hpp>

namespace corbd::kube {

VolumeData parse_volume_data(std::string_view text) {
  boost::system::error_code failed;
  const auto parsed = boost::json::parse(text, failed);
  const auto* object = failed ? nullptr : parsed.if_object();
  const auto value = [&](const char* key) -> std::string {
    const auto* found = object == nullptr ? nullptr : object->if_contains(key);
    return found != nullptr && found->is_string() ? std::string(found->get_string()) : "";
  };
  return {value("driverName"), value("volumeHandle"), value("specVolID"), value("seLinuxMountContext")};
}

}  // namespace corbd::kube
