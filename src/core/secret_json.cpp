#include "corbd/core/secret_json.hpp"

#include <string.h>

#include <boost/container/pmr/memory_resource.hpp>
#include <boost/json/parser.hpp>
#include <boost/json/serializer.hpp>
#include <new>

#include "corbd/core/secret.hpp"

namespace corbd {
namespace {

namespace json = boost::json;

class WipingMemory final : public boost::container::pmr::memory_resource {
  // Boost frees some texts with another alignment than it asked for.
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (alignment > __STDCPP_DEFAULT_NEW_ALIGNMENT__) throw std::bad_alloc();
    return ::operator new(bytes);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t /*alignment*/) override {
    explicit_bzero(memory, bytes);
    ::operator delete(memory);
  }
  bool do_is_equal(const boost::container::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

}  // namespace

json::storage_ptr wiping_storage() {
  static WipingMemory memory;
  return &memory;
}

std::string serialize_secret(const json::object& object) {
  constexpr std::size_t first_bytes = 4096;
  json::serializer serializer;
  serializer.reset(&object);
  std::string text(first_bytes, '\0');
  std::size_t length = 0;
  for (;;) {
    length += serializer.read(text.data() + length, text.size() - length).size();
    if (serializer.done()) break;
    std::string larger(2 * text.size(), '\0');
    text.copy(larger.data(), length);
    wipe(text);
    text = std::move(larger);
  }
  text.resize(length);
  return text;
}

json::value parse_secret(std::string_view text, boost::system::error_code& failed) {
  json::parser parser(wiping_storage());
  parser.reset(wiping_storage());
  parser.write(text.data(), text.size(), failed);
  if (failed) return json::value(wiping_storage());
  return parser.release();
}

}  // namespace corbd
