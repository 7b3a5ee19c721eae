// A temporary folder that is removed with its object.
#pragma once

#include <filesystem>
#include <string>

namespace corbd::test {

class Folder {
 public:
  explicit Folder(const std::filesystem::path& in = std::filesystem::temp_directory_path()) {
    std::string made = (in / "corbd-test-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = made;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace corbd::test
