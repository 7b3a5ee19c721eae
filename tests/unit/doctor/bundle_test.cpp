// The file that `corbd doctor --bundle` packs.
#include <sys/stat.h>

#include <filesystem>

#include "inputs.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
namespace fs = std::filesystem;

namespace {

/// The working folder, for as long as this lives.
class WorksIn {
 public:
  explicit WorksIn(const std::string& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  ~WorksIn() { fs::current_path(before_); }
  WorksIn(const WorksIn&) = delete;
  WorksIn& operator=(const WorksIn&) = delete;

 private:
  fs::path before_;
};

}  // namespace

TEST_CASE("a bundle is written where it was asked for, also with a colon in its name, and only its owner may read it") {
  const test::Folder folder;
  const WorksIn there(folder.path());
  doctor::Options options;
  options.config_dir = options.state_dir = folder.path();
  options.bundle = GENERATE("bundle.tgz", "node-1:30.tgz");
  REQUIRE(doctor::write_bundle(options, "1.2.3", {}));
  struct stat written{};
  REQUIRE(::stat((folder.path() + "/" + options.bundle).c_str(), &written) == 0);
  CHECK(written.st_size > 0);
  CHECK((written.st_mode & 0777) == 0600);
}
