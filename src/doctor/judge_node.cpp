// Judges the node around the agent: programs, the system bus, rights, and the agent's own status. Pure.
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

Finding tools(const Inputs& inputs) {
  std::vector<std::string> missing;
  std::set<std::string> packages;
  for (const auto& tool : inputs.tools)
    if (!tool.there) {
      missing.push_back(tool.name);
      packages.insert(tool.package);
    }
  if (missing.empty()) return ok("filesystem-tools", "all " + std::to_string(inputs.tools.size()) + " are there");
  return warning("filesystem-tools",
                 "missing: " + listed(missing) + ". Volumes of these types cannot be formatted, checked or grown here",
                 "install " + listed({packages.begin(), packages.end()}) + "; corbd's own image has them");
}

/// Indexed by Module. Never a warning: only encrypted volumes need it.
constexpr const char* kDmCrypt[] = {
    "the kernel's module is loaded: encrypted volumes can be opened",
    ("the kernel's module is not loaded: for encrypted volumes, run `modprobe dm_crypt` and list it in "
     "/etc/modules-load.d"),
    "no module can be seen here: if it is not built in, encrypted volumes are refused"};
Finding dm_crypt(const Inputs& inputs) { return ok("dm_crypt", kDmCrypt[static_cast<std::size_t>(inputs.dm_crypt)]); }

/// Never reports a failure: the node may have no volume of that KMS.
void kms_config(const Inputs& inputs, std::vector<Finding>& into) {
  const char* check = "kms-config";
  if (inputs.kms.empty()) into.push_back(ok(check, "nothing is wrong in config.json, if there is one"));
  for (const auto& complaint : inputs.kms)
    into.push_back(
        complaint.serves
            ? warning(check, complaint.text, "correct the names of these settings, or remove them from the KMS config")
            : warning(check, complaint.text,
                      "correct this section of the KMS config: until then no volume of this KMS can be "
                      "staged here"));
}

Finding system_bus(const Inputs& inputs) {
  if (inputs.system_bus) return ok("d-bus", "systemd answers: the agent sees a shutdown of the node");
  const auto& error = inputs.system_bus.error();
  if (error.code == errc::failed_precondition) return ok("d-bus", "not used: " + error.text);
  return warning(
      "d-bus", error.text,
      "in a pod, mount the node's /run/dbus: without it the agent leaves before the users of its volumes when the "
      "node shuts down");
}

/// Returns "get secrets", for example.
std::string name_of(const kube::Right& right) {
  const std::string group = right.group.empty() ? "" : "." + std::string(right.group);
  return std::string(right.verb) + " " + std::string(right.resource) + group;
}

Finding rights(const Inputs& inputs) {
  const char* check = "api-rights";
  if (!inputs.api_rights) {
    const auto& error = inputs.api_rights.error();
    if (error.code == errc::failed_precondition) return ok(check, "no API server: " + error.text);
    return warning(check, error.text, "correct the file that KUBERNETES_CONFIG_PATH names");
  }
  std::string unknown, narrower;
  std::vector<std::string> missing;
  for (const auto& [right, allowed, why_not] : *inputs.api_rights) {
    if (!allowed) unknown = why_not;
    // The remedy for a missing right is the ClusterRole. An operator who restricts rights to namespaces decided against
    // that.
    else if (!*allowed && right->by_namespace)
      narrower += "; " + name_of(*right) + " is not granted cluster-wide: by namespace?";
    else if (!*allowed)
      missing.push_back(name_of(*right) + ": without it " + std::string(right->without));
  }
  if (!missing.empty())
    return warning(check, "not granted: " + listed(missing, "; "),
                   "apply the ClusterRole and its binding of deploy/kubernetes/base/rbac.yaml");
  if (!unknown.empty())
    return warning(check, "the API server did not say: " + unknown,
                   "check the API server and the way to it; staged volumes do not wait for it");
  return ok(check, narrower.empty() ? "all " + std::to_string(inputs.api_rights->size()) + " are granted"
                                    : "all others are granted" + narrower);
}

Grade grade_of(v1::Verdict verdict) {
  return verdict == v1::VERDICT_OK ? Grade::ok : verdict == v1::VERDICT_CRITICAL ? Grade::failure : Grade::warning;
}

/// Reports kubelet's component always, others if something is wrong. The wording is that of `corbd status`.
void agents_word(const Inputs& inputs, std::vector<Finding>& into) {
  if (!inputs.status) {
    if (inputs.admin && inputs.options.standalone)
      into.push_back(warning("status", "the agent does not say how it is", "see its log, or try again"));
    else if (inputs.admin)
      into.push_back(
          warning("registration", "the agent does not say whether kubelet knows it", "see its log, or try again"));
    return;
  }
  for (const auto& component : inputs.status->components()) {
    const Grade grade = grade_of(component.verdict());
    const bool registration = component.name() == "kubelet";
    if (grade == Grade::ok && !registration) continue;
    into.push_back({registration ? "registration" : "status of " + component.name(), grade, component.text(),
                    grade == Grade::ok ? "" : "docs/runbook.md has an entry for what `corbd status` shows"});
  }
}

}  // namespace

void judge_node(const Inputs& inputs, std::vector<Finding>& into) {
  for (const auto check : {tools, dm_crypt, system_bus, rights}) into.push_back(check(inputs));
  kms_config(inputs, into);
  agents_word(inputs, into);
}

}  // namespace corbd::doctor
