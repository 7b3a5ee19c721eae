package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/semver"
	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type Release struct{ name, namespace string }

// KubeVersion and Capabilities have the fields that templates ask for.
type KubeVersion struct{ Version, Major, Minor string }

func (v KubeVersion) String() string     { return v.Version }
func (v KubeVersion) GitVersion() string { return v.Version }

type APIVersions []string

func (known APIVersions) Has(one string) bool {
	for _, version := range known {
		if version == one {
			return true
		}
	}
	return false
}

const deepest = 1000

func (chart *Chart) render(values map[string]interface{}, release Release, kube string) (map[string]string, error) {
	version, err := semver.NewVersion(kube)
	if err != nil {
		return nil, err
	}
	if wanted, ok := chart.about["KubeVersion"].(string); ok {
		range_, err := semver.NewConstraint(wanted)
		if err != nil {
			return nil, err
		}
		if !range_.Check(version) {
			return nil, fmt.Errorf("chart requires kubeVersion: %s which is incompatible with Kubernetes v%s", wanted, kube)
		}
	}
	root := template.New("gotpl").Option("missingkey=zero")
	root.Funcs(functions(root, map[string]int{}))
	names := []string{}
	for name := range chart.templates {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if _, err := root.New(full(chart, name)).Parse(chart.templates[name]); err != nil {
			return nil, err
		}
	}
	texts := map[string]string{}
	for _, name := range names {
		// A partial is not rendered by itself.
		if strings.HasPrefix(path.Base(name), "_") {
			continue
		}
		data := map[string]interface{}{
			"Values": values, "Chart": chart.about, "Files": chart.files,
			"Release": map[string]interface{}{"Name": release.name, "Namespace": release.namespace, "Service": "Helm",
				"IsInstall": true, "IsUpgrade": false, "Revision": 1},
			"Capabilities": map[string]interface{}{
				"KubeVersion": KubeVersion{"v" + version.String(), fmt.Sprint(version.Major()), fmt.Sprint(version.Minor())},
				"APIVersions": APIVersions{"v1", "apps/v1", "rbac.authorization.k8s.io/v1", "storage.k8s.io/v1"}},
			"Template": map[string]interface{}{"Name": full(chart, name), "BasePath": full(chart, "templates")},
		}
		var text strings.Builder
		if err := root.ExecuteTemplate(&text, full(chart, name), data); err != nil {
			return nil, err
		}
		texts[name] = strings.ReplaceAll(text.String(), "<no value>", "")
	}
	return texts, nil
}

func full(chart *Chart, name string) string { return fmt.Sprint(chart.about["Name"], "/", name) }

// functions are sprig's but for the two that read the environment, and Helm's own.
func functions(root *template.Template, depth map[string]int) template.FuncMap {
	all := sprig.TxtFuncMap()
	delete(all, "env")
	delete(all, "expandenv")
	all["toYaml"] = func(value interface{}) string {
		text, err := yaml.Marshal(value)
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(string(text), "\n")
	}
	all["fromYaml"] = func(text string) map[string]interface{} {
		return parsed(text, func(text []byte, into interface{}) error { return yaml.Unmarshal(text, into) })
	}
	all["toJson"] = func(value interface{}) string {
		text, _ := json.Marshal(value)
		return string(text)
	}
	all["fromJson"] = func(text string) map[string]interface{} { return parsed(text, json.Unmarshal) }
	all["include"] = func(name string, data interface{}) (string, error) {
		if depth[name]++; depth[name] > deepest {
			return "", fmt.Errorf("rendering template has a nested reference name: %s", name)
		}
		defer func() { depth[name]-- }()
		var text strings.Builder
		err := root.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	all["tpl"] = func(text string, data interface{}) (string, error) {
		copy_, err := root.Clone()
		if err != nil {
			return "", err
		}
		copy_.Funcs(functions(copy_, depth))
		parsed, err := copy_.New("tpl").Parse(text)
		if err != nil {
			return "", fmt.Errorf("cannot parse template %q: %w", text, err)
		}
		var into strings.Builder
		err = parsed.Execute(&into, data)
		return strings.ReplaceAll(into.String(), "<no value>", ""), err
	}
	all["required"] = func(warning string, value interface{}) (interface{}, error) {
		if text, isText := value.(string); value == nil || (isText && text == "") {
			return value, errors.New(warning)
		}
		return value, nil
	}
	all["fail"] = func(text string) (string, error) { return "", errors.New(text) }
	all["lookup"] = func(string, string, string, string) (map[string]interface{}, error) {
		return map[string]interface{}{}, nil
	}
	return all
}

func parsed(text string, parse func([]byte, interface{}) error) map[string]interface{} {
	into := map[string]interface{}{}
	if err := parse([]byte(text), &into); err != nil {
		into["Error"] = err.Error()
	}
	return into
}
