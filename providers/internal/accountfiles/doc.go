// Package accountfiles knows whose the folders of workspaces on a host are, and removes those of removed accounts.
//
// Beside the folders it keeps a file for each that names its account, and one that says for how long that was found removed. Several
// processes may use one directory; one of them sweeps at a time.
package accountfiles
