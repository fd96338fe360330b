package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/records/seal/awskms"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natsauth"
)

type secretsCommand struct {
	Status   secretsStatusCommand   `cmd:"" help:"Count records by the key that encrypts their secrets."`
	Rotate   secretsRotateCommand   `cmd:"" help:"Re-encrypt all secrets with the first key."`
	Generate secretsGenerateCommand `cmd:"" help:"Generate a key, as a line for the key file."`
}

// Help returns the detailed help, for kong.
func (*secretsCommand) Help() string {
	return `Variables of sandboxes and keys of webhooks are encrypted in the log with AES-256-GCM. The keys are a file
of lines "ID BASE64": the first one encrypts, all of them decrypt. Without --secrets-key-file or
SANDJET_SECRETS_KEYS it is secrets.key in the data folder, created at the first start. Keep a copy of it
away from the log: without it the secrets are lost.

A line may also be one that AWS KMS has encrypted, "ID aws-kms:ARN:BASE64": each process then has KMS decrypt it
once, at its start, with the credentials of its environment.

To change the key, put a new line first, restart all processes, run "sandjet secrets rotate", and remove
the old line once "sandjet secrets status" shows no record under it.

Examples:
  sandjet secrets status
  sandjet secrets generate
  sandjet secrets generate --kms-key alias/sandjet
  sandjet secrets rotate`
}

// secretsUse is the flags of the commands that read the log's secrets.
type secretsUse struct {
	logFlags
	secretsFlags
}

type secretsStatusCommand struct{ secretsUse }

// sealsLine is the status of one key.
type sealsLine struct {
	Key     string `json:"key"`
	Records int    `json:"records"`
	State   string `json:"state"` // active, decrypt-only or missing
}

// Run counts the records by key.
func (c *secretsStatusCommand) Run(ctx context.Context, t terminal) error {
	n, err := c.reach(ctx, t)
	if err != nil {
		return err
	}
	defer n.close()
	ring, err := c.known(ctx, n.dir)
	if err != nil {
		return err
	}
	count, err := records.CountSeals(ctx, n.bus)
	if err != nil {
		return err
	}
	lines := sealsLines(count, ring)
	if t.json {
		return printEach(t, lines)
	}
	const gap = 2
	w := tabwriter.NewWriter(t.out, 0, 0, gap, ' ', 0)
	fmt.Fprintln(w, "KEY\tRECORDS\tSTATE")
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%d\t%s\n", printable(l.Key), l.Records, l.State)
	}
	return wrapOutput(w.Flush())
}

// sealsLines converts a count to lines: first the key that encrypts, last the records that are not encrypted.
func sealsLines(count records.Seals, ring *seal.Ring) []sealsLine {
	lines := []sealsLine{{ring.Current(), count.Keys[ring.Current()], "active"}}
	for _, id := range slices.Sorted(maps.Keys(count.Keys)) {
		switch {
		case id == ring.Current():
		case ring.Has(id):
			lines = append(lines, sealsLine{id, count.Keys[id], "decrypt-only"})
		default:
			lines = append(lines, sealsLine{id, count.Keys[id], "missing: these records are unavailable"})
		}
	}
	if count.Plain > 0 {
		lines = append(lines, sealsLine{"(none)", count.Plain, "not encrypted: run \"sandjet secrets rotate\""})
	}
	return lines
}

type secretsRotateCommand struct{ secretsUse }

// Run encrypts all secrets with the first key. It may be interrupted and repeated.
func (c *secretsRotateCommand) Run(ctx context.Context, t terminal) error {
	const pace = 2 * time.Second // between lines of progress
	n, err := c.reach(ctx, t)
	if err != nil {
		return err
	}
	defer n.close()
	ring, err := c.known(ctx, n.dir)
	if err != nil {
		return err
	}
	if at, err := n.dir.running(); err == nil && len(at.SecretsKeys) > 0 && !slices.Contains(at.SecretsKeys, ring.Current()) {
		return schemas.Errorf(schemas.Conflict, "process %d, which runs on %s, does not have the key %s yet and could not read what it encrypts: "+
			"restart it, then run this again", at.PID, n.dir, ring.Current())
	}
	told := time.Now()
	r, err := records.Rotate(ctx, n.bus, ring, func(r records.Rotation) {
		if time.Since(told) >= pace {
			told = time.Now()
			t.log.Info("encrypting", "seen", r.Seen, "of", r.Records, "encrypted", r.Sealed)
		}
	})
	if err != nil {
		return fmt.Errorf("%d of %d records were checked; run it again to continue: %w", r.Seen, r.Records, err)
	}
	if t.json {
		err = printJSON(t.out, r)
	} else {
		err = say(t, "%d of %d records were encrypted with %s; the others already were, or have no secrets", r.Sealed, r.Records, ring.Current())
	}
	if err == nil && r.Locked > 0 {
		err = schemas.Errorf(schemas.Unavailable,
			"%d records cannot be decrypted with these keys and were left unchanged: \"sandjet secrets status\" names the keys", r.Locked)
	}
	return err
}

type secretsGenerateCommand struct {
	kmsFlags

	KMSKey      string `name:"kms-key" placeholder:"KEY" xor:"what" use:"" help:"Let AWS KMS generate the key and encrypt it under this KMS key (ARN, id or alias): the line is then not secret."`
	NATSCallout bool   `name:"nats-callout" xor:"what" use:"" help:"Generate the keys for --nats-callout-keys instead, with what the NATS server's configuration needs as comments."`
}

// Run prints a new key.
func (c *secretsGenerateCommand) Run(ctx context.Context, t terminal) error {
	if c.NATSCallout {
		text, err := natsauth.GenerateCalloutKeys()
		if err != nil {
			return err
		}
		return say(t, "%s", bytes.TrimSpace(text))
	}
	k := seal.Generate()
	line := k.Line()
	if c.KMSKey != "" {
		w, err := awskms.Service{Endpoint: c.KMSEndpoint}.Wrap(ctx, k.ID, c.KMSKey)
		if err != nil {
			return err
		}
		line = w.Line()
	}
	if t.json {
		return printJSON(t.out, map[string]string{"id": k.ID, "line": line})
	}
	return say(t, "%s", line)
}
