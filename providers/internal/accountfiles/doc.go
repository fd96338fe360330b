// Package accountfiles records which account the workspace folders on a host belong to, and removes the folders of removed accounts.
//
// Beside the folders it stores a file per workspace with the account, and one with the time for which the account was found removed.
// Several processes may use one directory; one of them sweeps at a time.
package accountfiles
