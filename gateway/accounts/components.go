package accounts

import "reflect"

// Components returns the types that only this package's part of the OpenAPI document needs, by name.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{
		"AccountList": reflect.TypeFor[AccountList](), "NewAccount": reflect.TypeFor[NewAccount](), "NewSecret": reflect.TypeFor[NewSecret](),
		"NATSCredentialRequest": reflect.TypeFor[natsRequest](), "RotateSecretRequest": reflect.TypeFor[rotateRequest](),
		"DeletedAccount": reflect.TypeFor[DeletedAccount](), "Deleted": reflect.TypeFor[Deleted](),
		"SandboxList": reflect.TypeFor[SandboxList](), "WorkspaceList": reflect.TypeFor[WorkspaceList](),
		"ModelList":    reflect.TypeFor[ModelList](),
		"AgentList":    reflect.TypeFor[AgentList](),
		"VariableList": reflect.TypeFor[VariableList](), "VariableValue": reflect.TypeFor[VariableValue](),
	}
}
