package main

import (
	"context"
	"fmt"
	"io"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type workspacesCommand struct {
	LS     workspacesListCommand   `cmd:"" name:"ls" help:"List workspaces."`
	Show   workspacesShowCommand   `cmd:"" help:"Show a workspace."`
	Create workspacesCreateCommand `cmd:"" help:"Create a workspace."`
	Set    workspacesSetCommand    `cmd:"" help:"Change a workspace."`
	RM     workspacesRemoveCommand `cmd:"" name:"rm" help:"Remove a workspace. Its files are not deleted."`
}

// Help returns the detailed help, for kong.
func (*workspacesCommand) Help() string {
	return `A workspace is a set of files, and the sandbox in which calls see them that name none.

Examples:
  sandjet workspaces create docs --sandbox build
  sandjet call --workspace docs bash 'ls'`
}

// workspaceFlags are the settings of a workspace.
type workspaceFlags struct {
	fileFlag

	Sandbox *string `placeholder:"ID" use:"" help:"Default sandbox for calls that name none (id or name); empty for none."`
}

// body returns the request body that the file and the flags describe.
func (f workspaceFlags) body(ctx context.Context, cl *client.Client, stdin io.Reader) (body, error) {
	b, err := f.read(stdin)
	if err != nil || f.Sandbox == nil {
		return b, err
	}
	if *f.Sandbox == "" {
		b["sandbox"] = nil
		return b, nil
	}
	b["sandbox"], err = sandboxKind().id(ctx, cl, *f.Sandbox)
	return b, err
}

type workspacesListCommand struct{ listTarget }

// Run lists the workspaces.
func (c *workspacesListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Workspaces(client.Me).List(ctx)
		if err != nil {
			return err
		}
		names := namesOf(ctx, t, cl)
		return printList(t, list, "No workspaces.", "ID\tNAME\tCREATED\tSANDBOX\tMANIFEST*\tDESCRIPTION",
			func(w schemas.WorkspaceDocument) string {
				sandbox := "-"
				if w.Sandbox != nil {
					sandbox = names.of(string(*w.Sandbox))
				}
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", w.ID, printable(w.Name), ago(w.Created), sandbox, orDash(printable(w.Manifest)),
					orDash(short(w.Description)))
			})
	})
}

type workspacesShowCommand struct{ recordArg }

// Run shows a workspace.
func (c *workspacesShowCommand) Run(ctx context.Context, t terminal) error {
	return workspaceKind().show(ctx, t, c.recordArg)
}

type workspacesCreateCommand struct {
	gatewayTarget
	workspaceFlags

	Name string `arg:"" optional:"" help:"Its name. Default: the file's."`
}

// Run creates a workspace.
func (c *workspacesCreateCommand) Run(ctx context.Context, t terminal) error {
	return workspaceKind().create(ctx, t, c.gatewayTarget, c.Name, c.body)
}

type workspacesSetCommand struct {
	recordArg
	workspaceFlags

	Name string `placeholder:"NAME" use:"" help:"Another name."`
}

// Run changes a workspace.
func (c *workspacesSetCommand) Run(ctx context.Context, t terminal) error {
	return workspaceKind().set(ctx, t, c.recordArg, c.Name, c.body)
}

type workspacesRemoveCommand struct{ recordArg }

// Run removes a workspace.
func (c *workspacesRemoveCommand) Run(ctx context.Context, t terminal) error {
	return workspaceKind().remove(ctx, t, c.recordArg)
}

func workspaceKind() kind[schemas.WorkspaceDocument] {
	return kind[schemas.WorkspaceDocument]{
		"workspace", schemas.WorkspacePrefix,
		func(cl *client.Client) client.Records[schemas.WorkspaceDocument] { return cl.Workspaces(client.Me) },
		func(w schemas.WorkspaceDocument) (id, name string) { return string(w.ID), w.Name },
	}
}
