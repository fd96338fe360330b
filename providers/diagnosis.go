package providers

// Diagnosis is one finding about what a provider needs, for people: "sandjet doctor" prints it.
type Diagnosis struct {
	About  string // a short name of what was checked, such as "docker image"
	Good   bool
	Says   string
	Remedy string // what to do; it counts only if Good is false
}
