package calls

import "reflect"

// Components returns the types for the OpenAPI document, by name.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{
		"CallState": reflect.TypeFor[State](), "CallList": reflect.TypeFor[List](), "ConversationList": reflect.TypeFor[ConversationList](),
		"RunStatus": reflect.TypeFor[runStatus](), "RunApproval": reflect.TypeFor[runApproval](),
	}
}
