package filesync

// state is the state of a file on one side, compared with the base.
type state int

const (
	absent  state = iota
	same          // as in the base
	changed       // otherwise, or there is no base
)

// action is what a comparison does with a file.
type action string

const (
	nothing    action = "nothing"
	bringIn    action = "bring in"    // the bucket's version into the copy
	dropCopy   action = "drop copy"   // it was removed from the bucket
	replace    action = "replace"     // the copy's version in the place of the base's
	create     action = "create"      // the copy's version, of which the bucket has none
	dropObject action = "drop object" // it was removed from the copy, and the bucket has the base's version
	settle     action = "settle"      // both have one: they are equal, or it is a conflict
	forget     action = "forget"      // neither has it any more
)

// usage is which uses may have changed the copy since the base.
type usage int

const (
	unused usage = iota // what the copy lacks it has lost
	others              // uses that continue: they write out their own changes
	ours                // a use that is written out now
)

// decide returns the action for a file by its states in the copy and in the bucket; base says whether both had a common version. It has no
// side effects.
func decide(base bool, local, remote state, u usage) action {
	switch {
	case local == absent && remote == absent:
		if base {
			return forget
		}
		return nothing
	case local == absent && remote == same && u == ours:
		return dropObject
	case local == absent && remote == same && u == others:
		return nothing
	case local == absent: // new, or changed since by another writer, which wins over a removal; or lost
		return bringIn
	case local == same && remote == absent:
		return dropCopy
	case local == same && remote == same:
		return nothing
	case local == same:
		return bringIn
	case remote == changed:
		return settle
	case u != ours:
		return nothing
	case remote == same:
		return replace
	}
	return create // new, or removed meanwhile by another writer: a change wins over a removal
}
