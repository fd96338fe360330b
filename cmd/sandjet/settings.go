package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"

	"github.com/sandjet/sandjet/schemas"
)

const maxConfig = 1 << 20 // bytes of a configuration file

// settings resolves flags that the command line does not set, for kong: from the environment, else from the file that --config or
// SANDJET_CONFIG names.
type settings struct {
	env  func(string) (string, bool)
	file map[string]string
	read bool
	err  error // of reading the file; kept here because kong would attribute it to a flag
}

var _ kong.Resolver = (*settings)(nil)

// Validate does nothing: the file is validated when it is read.
func (s *settings) Validate(*kong.Application) error { return nil }

// Resolve returns the value of a flag as text, or nil if neither source has one.
func (s *settings) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !s.read {
		s.read, s.err = true, s.load(ctx)
	}
	if !isKey(flag) {
		return nil, nil //nolint:nilnil // kong's word for "not here"
	}
	if v, ok := s.env(variable(flag.Name)); ok && v != "" {
		return v, nil
	}
	if v, ok := s.file[flag.Name]; ok {
		return v, nil
	}
	return nil, nil //nolint:nilnil // as above
}

func (s *settings) load(ctx *kong.Context) error {
	path, _ := s.env("SANDJET_CONFIG")
	for _, p := range ctx.Path {
		if p.Flag != nil && p.Flag.Name == "config" {
			path, _ = ctx.FlagValue(p.Flag).(string)
		}
	}
	if path == "" {
		return nil
	}
	f, err := os.Open(path) // the operator's own file
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	whole, err := grammar(new(cli)) // the file may have settings of other commands too
	if err != nil {
		return fmt.Errorf("grammar: %w", err)
	}
	if s.file, err = decodeSettings(b, keys(whole.Model.Node), s.env); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	return nil
}

// decodeSettings decodes a configuration file strictly: one flat mapping whose keys are names of flags. A key without a value is ignored.
// A value ${NAME} is replaced by the variable NAME of the environment; secret settings can be given in this form only. Code: invalid.
func decodeSettings(b []byte, known map[string]*kong.Flag, env func(string) (string, bool)) (map[string]string, error) {
	if len(b) > maxConfig {
		return nil, schemas.Invalidf("", "is larger than %d bytes", maxConfig)
	}
	var raw map[string]any
	err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(&raw)
	if err != nil && !errors.Is(err, io.EOF) { // an empty file is fine
		return nil, schemas.Invalidf("", "is not a YAML mapping of settings: %v", err)
	}
	out := make(map[string]string, len(raw))
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		flag, ok := known[key]
		if !ok {
			return nil, schemas.Invalidf("", "unknown setting %q: %s", schemas.Quotable(key), nearest(key, slices.Sorted(maps.Keys(known))))
		}
		v, err := scalar(raw[key])
		if err != nil {
			return nil, schemas.Invalidf(key, "%v", err)
		}
		if v == nil {
			continue
		}
		text, err := expand(*v, flag, env)
		if err != nil {
			return nil, schemas.Invalidf(key, "%v", err)
		}
		out[key] = text
	}
	return out, nil
}

var errNested = errors.New("must be one value or a list of values, not a mapping")

// scalar returns a YAML value in the form that its flag has on the command line; a list becomes a,b,c. It returns nil for no value.
func scalar(v any) (*string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil //nolint:nilnil // no value is no error
	case []any:
		parts := make([]string, 0, len(v))
		for _, e := range v {
			p, err := scalar(e)
			if err != nil || p == nil {
				return nil, errNested
			}
			parts = append(parts, strings.ReplaceAll(*p, ",", `\,`))
		}
		if len(parts) == 0 {
			return nil, nil //nolint:nilnil // as above
		}
		return new(strings.Join(parts, ",")), nil
	case string, bool, int, int64, uint64, float64:
		return new(fmt.Sprint(v)), nil
	}
	return nil, errNested
}

// expand returns the value of the variable NAME if v is ${NAME}, else v. Any other value is an error for a secret setting.
func expand(v string, flag *kong.Flag, env func(string) (string, bool)) (string, error) {
	name, isVariable := strings.CutPrefix(v, "${")
	name, closed := strings.CutSuffix(name, "}")
	switch {
	case isVariable && closed && variableName().MatchString(name):
		text, ok := env(name)
		if !ok {
			return "", fmt.Errorf("needs the variable %s, which is not set", name)
		}
		return text, nil
	case flag.Tag.Has("secret") && v != "":
		return "", errors.New("is secret: write ${NAME}, the name of a variable, not the value itself")
	}
	return v, nil
}

func variableName() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) }

// keys returns the settings: the flags of all commands except those with the tag use.
func keys(n *kong.Node) map[string]*kong.Flag {
	out := map[string]*kong.Flag{}
	_ = kong.Visit(n, func(v kong.Visitable, next kong.Next) error {
		if f, ok := v.(*kong.Flag); ok && isKey(f) {
			out[f.Name] = f
		}
		return next(nil)
	})
	return out
}

// isKey reports whether a flag is a setting, which the environment and the file can set too.
func isKey(f *kong.Flag) bool {
	return f.Name != "help" && !f.Tag.Has("use")
}

// variable returns the name of a setting in the environment.
func variable(flag string) string {
	return "SANDJET_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// describe returns the help text of a flag or argument, with its default and its variable.
func describe(v *kong.Value) string {
	if v.Flag == nil || !isKey(v.Flag) {
		return v.Help
	}
	help := v.Help
	if v.HasDefault {
		help += " Default: " + v.Default + "."
	}
	return help + " " + variable(v.Name)
}

// nearest returns a hint for an unknown setting: the known one that was probably meant.
func nearest(name string, known []string) string {
	if best := schemas.Nearest(strings.ReplaceAll(name, "_", "-"), known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "settings have the names of flags, see sandjet help COMMAND"
}
