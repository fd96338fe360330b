package jobs

import "reflect"

// Components are the types of bodies, by their names in the API's description.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{
		"JobList": reflect.TypeFor[List](), "LogPage": reflect.TypeFor[LogPage](), "JobSignal": reflect.TypeFor[signalRequest](),
		"JobEnd": reflect.TypeFor[endAnswer](), "JobSettled": reflect.TypeFor[settledAnswer](),
	}
}
