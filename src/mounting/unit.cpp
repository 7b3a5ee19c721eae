// Makes a systemd unit for one mount. A .mount unit would run mount(8), which cannot use CSI.
#include "unit.hpp"

namespace corbd::mounting {
namespace {

/// Quotes a word for ExecStart (systemd.service(5), "Command lines"), without specifiers and variables.
std::string unit_word(const std::string& word) {
  std::string made = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') made += '\\';
    if (c == '%' || c == '$') made += c;
    made += c;
  }
  return made + "\"";
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return text;
}

}  // namespace

std::string unit_of(const Options& ask, const std::string& program) {
  const MountSpec& spec = ask.spec;
  const Options plain;
  std::string places;
  const auto give = [](std::string& to, const char* option, const std::string& value, const std::string& otherwise) {
    if (value != otherwise) to += std::string(" ") + option + " " + unit_word(value);
  };
  give(places, "--endpoint", ask.endpoint, plain.endpoint);
  give(places, "--root", ask.root, plain.root);
  give(places, "--runtime-dir", ask.runtime_dir, plain.runtime_dir);
  std::string mount = unit_word(program) + " mount --wait --timeout " + std::to_string(limit_of(ask)) + places;
  give(mount, "--cluster", spec.cluster, "");
  give(mount, "--conf", spec.conf, plain.spec.conf);
  give(mount, "--user", spec.user, plain.spec.user);
  give(mount, "--keyring", spec.keyring, "");
  give(mount, "--fstype", spec.fstype, "");
  give(mount, "--options", spec.options, "");
  give(mount, "--encrypted", spec.kms, "");
  give(mount, "--passphrase-file", spec.passphrase_file, "");
  for (const auto& attribute : spec.attributes) give(mount, "--attribute", attribute, "");
  if (spec.read_only) mount += " --read-only";
  if (spec.block) mount += " --block";
  mount += " " + unit_word(spec.image) + " " + unit_word(spec.dir);
  std::string description = one_line("RBD image " + spec.image + " at " + spec.dir);
  for (std::size_t at = 0; (at = description.find('%', at)) != description.npos; at += 2) description.insert(at, "%");
  // Leave out Requires=: an upgrade restarts the agent, and no mount may end with it.
  // A mount may wait for another host to be fenced; systemd's own limit would kill it before.
  return "[Unit]\nDescription=" + description +
         "\nWants=corbd.service\nAfter=corbd.service network-online.target\nWants=network-online.target\n"
         "Before=remote-fs.target\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\nTimeoutStartSec=" +
         std::to_string(limit_of(ask) + 180) + "\nTimeoutStopSec=" + std::to_string(limit_of(ask) + 60) +
         "\nExecStart=" + one_line(mount) + "\nExecStop=" +
         one_line(unit_word(program) + " unmount --timeout " + std::to_string(limit_of(ask)) + places + " " +
                  unit_word(spec.dir)) +
         "\n\n[Install]\nWantedBy=remote-fs.target\n";
}

}  // namespace corbd::mounting
