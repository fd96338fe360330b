package delivery

import "time"

// SetSchedule replaces the delays before the tries.
func (d *Deliverer) SetSchedule(waits ...time.Duration) { d.schedule = waits }
