// Renders a chart as Helm 3 does (pkg/engine and pkg/chartutil), with Debian's sprig: `helm template` for tests. Prints a JSON object: the text of
// each template by its name; with --text the manifests one after the other. A value that the schema refuses, and a template that fails, end it with 1 and the reason on stderr.
//
//	render [--text] [--release NAME] [--namespace NAME] [--kube-version 1.30.0] [--values FILE]... [--set PATH=VALUE]... [--set-json PATH=JSON]... CHART
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
)

// options are in the order of the command line: what comes later wins.
type options struct{ changes []change }

type change struct{ kind, text string }

type collector struct {
	into *options
	kind string
}

func (c collector) String() string { return "" }
func (c collector) Set(text string) error {
	c.into.changes = append(c.into.changes, change{c.kind, text})
	return nil
}

func main() {
	var given options
	release := flag.String("release", "corbd", "the release's name")
	namespace := flag.String("namespace", "default", "the release's namespace")
	kube := flag.String("kube-version", "1.30.0", "what Capabilities say")
	for _, kind := range []string{"values", "set", "set-json"} {
		flag.Var(collector{&given, kind}, kind, "values")
	}
	plain := flag.Bool("text", false, "print manifests, not JSON")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	texts, err := render(flag.Arg(0), given.changes, Release{*release, *namespace}, *kube)
	if err == nil && *plain {
		print(texts)
	} else if err == nil {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(texts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func print(texts map[string]string) {
	names := []string{}
	for name, text := range texts {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Printf("---\n# Source: %s\n%s\n", name, strings.TrimSpace(texts[name]))
	}
}

func render(folder string, changes []change, release Release, kube string) (map[string]string, error) {
	chart, err := load(folder)
	if err != nil {
		return nil, err
	}
	values, err := merged(chart.values, changes)
	if err != nil {
		return nil, err
	}
	if err := chart.judge(values); err != nil {
		return nil, err
	}
	return chart.render(values, release, kube)
}
