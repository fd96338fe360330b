package channels

import "reflect"

// Components are the types of bodies, by their names in the API's description.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{
		"ChannelList": reflect.TypeFor[List](), "ChannelRequest": reflect.TypeFor[request](), "ChannelPatch": reflect.TypeFor[patch](),
		"ChannelTest": reflect.TypeFor[testRequest](), "ChannelTested": reflect.TypeFor[Tested](),
	}
}
