package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// readInput reads the input of r for its tool; what a model has done wrong becomes the misuse of what is returned. Its errors are of
// inputs that are more than anything that reads them later should meet.
func (r Request) readInput() (*parsedInput, error) {
	if bytes.Count(r.Input, []byte(",")) >= MaxMembers { // it may have too many members, which take long
		err := checkBounds(r.Input, MaxMembers)
		if e, ok := errors.AsType[*Error](err); ok && json.Valid(r.Input) {
			return nil, underInput(e)
		}
	}
	p, err := r.fitInput()
	if err == nil {
		return p, nil
	}
	misuse, ok := errors.AsType[*Error](err)
	if !ok || !json.Valid(r.Input) { // of a request that no decoder has read
		return nil, err
	}
	err = checkText(r.Input, MaxInput)
	if err == nil {
		err = checkBounds(r.Input, MaxMembers)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return nil, underInput(e)
	}
	return &parsedInput{tool: r.Tool, sent: r.Input, placed: r.Input, misuse: misuse}, err
}

// fitInput reads the input of r for its tool. Its errors are misuses.
func (r Request) fitInput() (*parsedInput, error) {
	p := &parsedInput{tool: r.Tool, sent: r.Input}
	var err error
	if p.placed, p.workspace, err = takeWorkspace(r.Input); err != nil {
		return nil, err
	}
	if _, err = r.placedIn(p.placed, p.workspace); err != nil {
		return nil, err
	}
	if p.value, err = DecodeInput(r.Tool, p.placed); err != nil {
		return nil, err
	}
	b, ok := p.value.(BashInput)
	if ok && r.Dialect == DialectDeepAgents && (b.Timeout != nil || b.Description != "") {
		return nil, Invalidf("input", "timeout and description belong to the dialect claude: set the call's timeout instead")
	}
	return p, nil
}

func underInput(e *Error) *Error {
	under := *e
	under.Field = strings.TrimSuffix("input."+e.Field, ".")
	return &under
}

// about reports whether one of the problems is with a field.
func (p *Problems) about(field string) bool {
	return slices.ContainsFunc(*p, func(e *Error) bool { return e.Field == field || e.Field == "" })
}

// misfit is the error of an input that does not fit its tool, about the first field that is wrong: its message names the others too, as a
// model corrects all of them at once, and the fields that there are where one is unknown.
func misfit(wrong Problems, input reflect.Type) *Error {
	const most = 5 // of those that are named
	unknown := slices.ContainsFunc(wrong, func(e *Error) bool { return strings.HasPrefix(e.Message, unknownField) })
	known := ""
	if unknown {
		known = ". Known fields: " + strings.Join(namesOf(input), ", ")
	}
	e := underInput(wrong[0])
	for i, other := range wrong[1:] {
		if i+1 == most {
			e.Message += fmt.Sprintf("; and %d more", len(wrong)-most)
			break
		}
		e.Message += "; " + other.Field + " " + other.Message
	}
	e.Message += known
	return e
}

// namesOf lists the JSON names of a struct's fields in their order.
func namesOf(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
