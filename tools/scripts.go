package tools

import _ "embed" // for the scripts

//go:embed scripts/prelude.sh
var prelude string // a constant in all but syntax

var ( // constants in all but syntax
	//go:embed scripts/read.sh
	readScript string
	//go:embed scripts/write.sh
	writeScript string
	//go:embed scripts/edit.sh
	editScript string
	//go:embed scripts/glob.sh
	globScript string
	//go:embed scripts/stage.sh
	stageScript string
	//go:embed scripts/grep.sh
	grepScript string
	//go:embed scripts/ls.sh
	lsScript string
)
