package main

import "context"

// logFlags are the flags of commands that connect to the log.
type logFlags struct {
	natsFlags

	dir string
}

// AfterApply is called by kong once everything is parsed.
func (f *logFlags) AfterApply(root *cli) error {
	f.dir = clientDir(root.DataDir)
	return nil
}

// reach connects to the log that the flags name, or else to the one that runs on the data folder. The caller closes the node.
func (f *logFlags) reach(ctx context.Context, t terminal) (*node, error) {
	n, err := newNode(t.log, f.dir)
	if err != nil {
		return nil, err
	}
	if f.NATSURL == "" {
		if _, err := n.dir.running(); err != nil { // a stale role.json would only cause a long wait
			if r, rerr := readJSON[role](n.dir.roleFile()); rerr != nil || !dials(ctx, r.URL) {
				return nil, err
			}
		}
	}
	if err := n.openBus(ctx, f.natsFlags, topologyFlags{}); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}
