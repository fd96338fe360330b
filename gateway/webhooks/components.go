package webhooks

import "reflect"

// Components returns the types for the OpenAPI document, by name.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{
		"WebhookList": reflect.TypeFor[List](), "WebhookRequest": reflect.TypeFor[request](), "WebhookPatch": reflect.TypeFor[patch](),
		"RotateRequest": reflect.TypeFor[rotateRequest](), "ReplayRequest": reflect.TypeFor[replayRequest](),
	}
}
