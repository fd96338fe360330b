package schemas

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// InboxFolder is where files of messages are stored, below the root of the workspace: in a folder for each message.
	InboxFolder = "inbox"
	// InboxChannel is the channel of deliveries that are messages with files on their way in, see [Incoming].
	InboxChannel = "inbox"
	// FilesWithin is how long a message waits at most for one with files that was written before it.
	FilesWithin = 10 * time.Minute
	// SettingFiles is the setting of a chat channel that says which files are stored: kinds with commas between, such as
	// image/*,application/pdf. Without it all are; "none": none is.
	SettingFiles = "files"
)

// Incoming is the body of a delivery of [InboxChannel]: a message whose files are still with the service, or one that was written after
// such a message.
type Incoming struct {
	Turn FollowUp `json:"turn"`
	// After is the message that comes before it.
	After FollowUpID `json:"after,omitzero"`
}

// IncomingDelivery is a message on its way to its files. There is one for each message.
func IncomingDelivery(in Incoming) Delivery {
	f := in.Turn
	event := MessageReceivedID(f.Account, f.ID)
	return Delivery{
		ID: MakeDeliveryID(event, InboxChannel), Account: f.Account, Channel: InboxChannel, ChannelID: f.Message.Channel, Event: event,
		Type: MessageReceived, Conversation: f.Conversation, Body: string(mustJSON(in)), Created: f.Created.UTC(),
	}
}

// SafeFileName turns a name that a person gave into one that every file system accepts: the last part of a path, without control
// characters, slashes and text direction marks, at most MaxChatFileName bytes, never hidden. It is pure.
func SafeFileName(name string) string {
	name = strings.ToValidUTF8(name, "_")
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) || strings.ContainsRune(`:*?"<>|`, r) {
			return '_'
		}
		return r
	}, name)
	name = strings.TrimRight(strings.TrimLeft(name, " "), " .")
	if strings.HasPrefix(name, ".") {
		name = "_" + name[1:]
	}
	if len(name) > MaxChatFileName {
		end := path.Ext(name)
		if len(end) > MaxChatFileName/4 {
			end = ""
		}
		name = strings.TrimRight(HeadText(name[:len(name)-len(end)], MaxChatFileName-len(end)), " .") + end
	}
	if strings.Trim(name, "_") == "" {
		return "file"
	}
	return name
}

// InboxPaths returns where the files of a message are stored: in a folder of the message, under different names, always the same. It is
// pure.
func InboxPaths(id FollowUpID, files []ChatFile) []string {
	paths := make([]string, len(files))
	for i, f := range files {
		name := SafeFileName(f.Name)
		for n := 2; slices.ContainsFunc(paths[:i], func(p string) bool { return strings.EqualFold(path.Base(p), name) }); n++ {
			base := SafeFileName(f.Name)
			end := path.Ext(base)
			name = strings.TrimSuffix(base, end) + "-" + strconv.Itoa(n) + end
		}
		paths[i] = path.Join(InboxFolder, string(id), name)
	}
	return paths
}

// Said is the text of a message with a line for each of its files, as a model reads it. It is pure.
func (m ChatMessage) Said() string {
	if len(m.Files) == 0 {
		return m.Text
	}
	var b strings.Builder
	if b.WriteString(m.Text); m.Text != "" {
		b.WriteString("\n\n")
	}
	b.WriteString("Files of this message:")
	for _, f := range m.Files {
		var about []string
		if f.Type != "" {
			about = append(about, plain(f.Type))
		}
		if f.Size > 0 {
			about = append(about, fmt.Sprintf("%d bytes", f.Size))
		}
		b.WriteString("\n- ")
		switch {
		case f.Path != "":
			b.WriteString(f.Path)
		default:
			b.WriteString(SafeFileName(f.Name))
		}
		if len(about) > 0 {
			b.WriteString(" (" + strings.Join(about, ", ") + ")")
		}
		if f.Reason != "" {
			b.WriteString(": not stored, " + f.Reason)
		}
	}
	return b.String()
}

// plain is a short line of untrusted text.
func plain(s string) string {
	return Quotable(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(s, "_")))
}
