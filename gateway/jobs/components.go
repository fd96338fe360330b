package jobs

import "reflect"

// Components returns the types for the OpenAPI document, by name.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{
		"JobList": reflect.TypeFor[List](), "LogPage": reflect.TypeFor[LogPage](), "JobSignal": reflect.TypeFor[signalRequest](),
		"JobEnd": reflect.TypeFor[endAnswer](), "JobSettled": reflect.TypeFor[settledAnswer](),
	}
}
