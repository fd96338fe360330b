package artifacts

import "github.com/sandjet/sandjet/providers/workspacefs"

// Get is get, for tests from outside.
func (r *CallMemory) Get(key string, info workspacefs.Info) string { return r.get(key, info) }

// Put is put, likewise.
func (r *CallMemory) Put(key string, info workspacefs.Info, sum string) { r.put(key, info, sum) }
