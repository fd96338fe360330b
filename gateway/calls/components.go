package calls

import "reflect"

// Components are the types of bodies, by their names in the API's description.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{
		"CallState": reflect.TypeFor[State](), "CallList": reflect.TypeFor[List](), "ConversationList": reflect.TypeFor[ConversationList](),
		"RunStatus": reflect.TypeFor[runStatus](), "RunApproval": reflect.TypeFor[runApproval](),
	}
}
