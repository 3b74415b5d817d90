package main

// role is which planes a process runs.
type role string

const (
	roleAll     role = "all"
	roleControl role = "control"
	roleEdge    role = "edge"
)

// serves says whether the process answers apps.
func (r role) serves() bool { return r != roleControl }

// controls says whether the process takes changes.
func (r role) controls() bool { return r != roleEdge }
