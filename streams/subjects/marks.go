package subjects

import "strings"

// ShardKey returns the key of the mark up to when events were removed from a shard for their age.
func ShardKey(stream string) string { return strings.TrimPrefix(stream, EventStreams) }

// ConversationKey returns the key of the mark up to when events were removed from a conversation for their number; subject is that of its
// events.
func ConversationKey(subject string) string {
	_, key, _ := strings.Cut(strings.TrimPrefix(subject, Events), ".") // the shard is first
	return key
}
