// Command sandjet is Sandjet in one binary: the whole system in one process (up), each of its roles alone (server, gateway, worker,
// deliver), and the commands that use it (call, jobs, webhooks, tail, dead, doctor, demo).
//
// It is the only place where all packages meet: those that do not know one another are connected here, as the settings say, which come
// from flags, the environment or a file, in that order.
//
// A command has three phases. Parsing turns the command line into a command with its settings and has no effect. Building opens what the
// command needs, in order, and reports what is missing. Running lasts until the context ends, and then closes everything in the opposite
// order.
package main
