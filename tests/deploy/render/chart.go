package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/xeipuuv/gojsonschema"
	"sigs.k8s.io/yaml"
)

type Chart struct {
	about     map[string]interface{}
	values    map[string]interface{}
	schema    []byte
	templates map[string]string
	files     Files
}

// Files is what templates read besides templates.
type Files map[string][]byte

func (f Files) Get(name string) string      { return string(f[name]) }
func (f Files) GetBytes(name string) []byte { return f[name] }

func load(folder string) (*Chart, error) {
	chart := &Chart{templates: map[string]string{}, files: Files{}}
	err := filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		name, _ := filepath.Rel(folder, path)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch {
		case name == "Chart.yaml":
			err = yaml.Unmarshal(text, &chart.about)
		case name == "values.yaml":
			err = yaml.Unmarshal(text, &chart.values)
		case name == "values.schema.json":
			chart.schema = text
		case strings.HasPrefix(name, "templates/"):
			chart.templates[name] = string(text)
		default:
			chart.files[name] = text
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err == nil && (chart.about == nil || chart.schema == nil) {
		err = errors.New(folder + " is no chart with a schema")
	}
	if err != nil {
		return nil, err
	}
	// Templates say .Chart.Name.
	about := map[string]interface{}{}
	for key, value := range chart.about {
		about[strings.ToUpper(key[:1])+key[1:]] = value
	}
	chart.about = about
	return chart, nil
}

func (chart *Chart) judge(values map[string]interface{}) error {
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	found, err := gojsonschema.Validate(gojsonschema.NewBytesLoader(chart.schema), gojsonschema.NewBytesLoader(text))
	if err != nil {
		return fmt.Errorf("values.schema.json: %w", err)
	}
	if found.Valid() {
		return nil
	}
	lines := []string{"values don't meet the specifications of the schema:"}
	for _, one := range found.Errors() {
		lines = append(lines, "- "+one.String())
	}
	return errors.New(strings.Join(lines, "\n"))
}
