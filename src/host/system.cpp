#include "corbd/host/system.hpp"

#include <systemd/sd-bus.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "corbd/core/file.hpp"
#include "corbd/core/sysfs.hpp"

namespace corbd::host {
namespace {

using Bus = std::unique_ptr<sd_bus, decltype(&sd_bus_close_unref)>;

Error bus_failure(const char* what, int r) {
  return {errc::unavailable, std::string("asking ") + what + " over D-Bus: " + std::strerror(-r) +
                                 ": mount the node's /run/dbus, so that the agent knows when the node shuts down"};
}

}  // namespace

result<bool> system_stopping(std::chrono::milliseconds patience) {
  sd_bus* opened = nullptr;
  if (const int r = sd_bus_open_system(&opened); r < 0) return bus_failure("the system bus", r);
  const Bus bus(opened, &sd_bus_close_unref);
  // Two questions share this time.
  sd_bus_set_method_call_timeout(bus.get(),
                                 static_cast<std::uint64_t>(std::chrono::microseconds(patience).count() / 2));
  char* text = nullptr;
  const int systemd = sd_bus_get_property_string(bus.get(), "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                                                 "org.freedesktop.systemd1.Manager", "SystemState", nullptr, &text);
  const std::unique_ptr<char, decltype(&std::free)> state(text, &std::free);
  if (systemd >= 0 && std::strcmp(text, "stopping") == 0) return true;
  int preparing = 0;
  const int logind =
      sd_bus_get_property_trivial(bus.get(), "org.freedesktop.login1", "/org/freedesktop/login1",
                                  "org.freedesktop.login1.Manager", "PreparingForShutdown", nullptr, 'b', &preparing);
  if (logind >= 0 && preparing != 0) return true;
  if (systemd < 0 && logind < 0) return bus_failure("systemd", systemd);
  return false;
}

std::string pid_namespace(const std::string& proc) {
  std::error_code none;
  return std::filesystem::read_symlink(proc + "/self/ns/pid", none).string();
}

std::optional<std::uint64_t> capabilities_of(const std::string& process) {
  constexpr std::string_view name = "CapEff:\t";
  const auto status = read_file(process + "/status", 16 << 20);
  const auto at = status ? status->find(name) : std::string::npos;
  if (at == std::string::npos) return std::nullopt;
  const auto begin = at + name.size();
  return sysfs::number<std::uint64_t>(std::string_view(*status).substr(begin, status->find('\n', begin) - begin), 16);
}

std::optional<std::string> other_init(const std::string& proc) {
  if (pid_namespace(proc) != kHostPids) return std::nullopt;
  std::ifstream file(proc + "/1/comm");
  std::string name;
  // systemd as PID 1 gives itself this name, however it was started.
  if (!std::getline(file, name) || name.empty() || name == "systemd") return std::nullopt;
  return "the host's init is " + name +
         ", not systemd: nobody tells the agent that the node shuts down, and it leaves before its volumes' users";
}

}  // namespace corbd::host
