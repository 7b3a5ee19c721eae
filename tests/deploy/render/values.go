package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// merged gives the chart's defaults with the changes over them. As in Helm, maps are merged, anything else is replaced, and null removes a default.
func merged(defaults map[string]interface{}, changes []change) (map[string]interface{}, error) {
	user := map[string]interface{}{}
	for _, one := range changes {
		var next map[string]interface{}
		var err error
		switch one.kind {
		case "values":
			next, err = valuesFile(one.text)
		default:
			next, err = assignment(one)
		}
		if err != nil {
			return nil, err
		}
		user = over(user, next, false)
	}
	return over(defaults, user, true), nil
}

func valuesFile(name string) (map[string]interface{}, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	values := map[string]interface{}{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return values, nil
}

func assignment(given change) (map[string]interface{}, error) {
	path, text, found := strings.Cut(given.text, "=")
	if !found {
		return nil, fmt.Errorf("--%s %s has no value", given.kind, given.text)
	}
	var value interface{} = typed(text)
	if given.kind == "set-json" {
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return nil, fmt.Errorf("--set-json %s: %w", given.text, err)
		}
	}
	// A dot that belongs to a key is behind a backslash.
	keys := strings.Split(strings.ReplaceAll(path, `\.`, "\x00"), ".")
	for index := len(keys) - 1; index >= 0; index-- {
		value = map[string]interface{}{strings.ReplaceAll(keys[index], "\x00", "."): value}
	}
	return value.(map[string]interface{}), nil
}

// typed is how --set reads a value.
func typed(text string) interface{} {
	switch text {
	case "true":
		return true
	case "false":
		return false
	case "null":
		return nil
	}
	if strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") {
		list := []interface{}{}
		for _, item := range strings.Split(strings.Trim(text, "{}"), ",") {
			if item != "" {
				list = append(list, typed(item))
			}
		}
		return list
	}
	// Zeros in front: a text.
	if number, err := strconv.ParseInt(text, 10, 64); err == nil && (text == "0" || !strings.HasPrefix(text, "0")) {
		return number
	}
	return text
}

func over(under, top map[string]interface{}, removes bool) map[string]interface{} {
	both := map[string]interface{}{}
	for key, value := range under {
		both[key] = value
	}
	for key, value := range top {
		below, isMap := both[key].(map[string]interface{})
		above, isMapToo := value.(map[string]interface{})
		switch {
		case value == nil && removes:
			delete(both, key)
		case isMap && isMapToo:
			both[key] = over(below, above, removes)
		default:
			both[key] = value
		}
	}
	return both
}
