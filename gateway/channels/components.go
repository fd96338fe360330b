package channels

import "reflect"

// Components returns the types for the OpenAPI document, by name.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{
		"ChannelList": reflect.TypeFor[List](), "ChannelRequest": reflect.TypeFor[request](), "ChannelPatch": reflect.TypeFor[patch](),
		"ChannelTest": reflect.TypeFor[testRequest](), "ChannelTested": reflect.TypeFor[Tested](),
	}
}
