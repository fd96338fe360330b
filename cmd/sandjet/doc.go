// Command sandjet is Sandjet in one binary: the whole system in one process (up), each of its roles
// alone (server, gateway, worker, deliver), and the commands that use it (call, jobs, webhooks, tail,
// dead, doctor, demo).
//
// It is the only place where everything meets: what the packages below do not know of one another is
// put together here, from settings that flags, the environment or a file give, in that order.
//
// A command goes through three steps. Parsing turns words into a command with its settings and has
// no effect. Building opens what the command needs, in order, and says clearly what is in the way.
// Running ends when the context does, and undoes the building in the opposite order.
package main
