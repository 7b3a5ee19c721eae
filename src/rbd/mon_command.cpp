#include "mon_command.hpp"

#include <boost/json/serialize.hpp>
#include <memory>

namespace corbd::rbd {

MonAnswer ask_monitors(rados_t cluster, const boost::json::object& words) {
  const std::string line = boost::json::serialize(words);
  const char* lines[] = {line.c_str()};
  char* output = nullptr;
  char* text = nullptr;
  std::size_t output_size = 0, text_size = 0;
  const int code = rados_mon_command(cluster, lines, 1, nullptr, 0, &output, &output_size, &text, &text_size);
  const std::unique_ptr<char, void (*)(char*)> owned_output(output, &rados_buffer_free);
  const std::unique_ptr<char, void (*)(char*)> owned_text(text, &rados_buffer_free);
  return {code, std::string(output == nullptr ? "" : output, output_size),
          std::string(text == nullptr ? "" : text, text_size)};
}

}  // namespace corbd::rbd
