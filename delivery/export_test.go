package delivery

import "time"

// SetSchedule shortens the waits between the tries.
func (d *Deliverer) SetSchedule(waits ...time.Duration) { d.schedule = waits }
