package webhooks

import "reflect"

// Components are the types of bodies, by their names in the API's description.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{
		"WebhookList": reflect.TypeFor[List](), "WebhookRequest": reflect.TypeFor[request](), "WebhookPatch": reflect.TypeFor[patch](),
		"RotateRequest": reflect.TypeFor[rotateRequest](), "ReplayRequest": reflect.TypeFor[replayRequest](),
	}
}
