package discord

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"

	"github.com/sandjet/sandjet/delivery/channel"
)

// The token of a command lets its holder write the answer for 15 minutes. Routes are stored in a stream, so they contain the token only
// encrypted, with a key derived from the bot's token. The bot's token is itself stored encrypted: a copy of the stream discloses neither.

// sealed returns a command's token encrypted for its route. It is deterministic: the same token, interaction and bot token give the same
// text. It returns "" if the bot token or the token is empty.
func sealed(token, interaction, bot string) string {
	box := box(bot)
	if box == nil || token == "" {
		return ""
	}
	nonce := digest(bot, "nonce\x00"+interaction+"\x00"+token)[:box.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(box.Seal(nonce, nonce, []byte(token), []byte(interaction)))
}

// unsealed decrypts a token encrypted by [sealed]. It returns "" if it was encrypted with another bot token, such as a replaced one.
func unsealed(text, interaction, bot string) string {
	box := box(bot)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || box == nil || len(raw) < box.NonceSize() {
		return ""
	}
	token, err := box.Open(nil, raw[:box.NonceSize()], raw[box.NonceSize():], []byte(interaction))
	if err != nil {
		return ""
	}
	return string(token)
}

func digest(bot, what string) []byte {
	mac := hmac.New(sha256.New, []byte(bot))
	mac.Write([]byte("sandjet interaction token\x00" + what))
	return mac.Sum(nil)
}

func box(bot string) cipher.AEAD {
	if bot == "" {
		return nil
	}
	block, err := aes.NewCipher(digest(bot, "key"))
	if err != nil {
		return nil // a digest is as long as a key
	}
	box, err := cipher.NewGCM(block)
	if err != nil {
		return nil
	}
	return box
}

// routeOf reads the route of a destination and decrypts its interaction token. Code: invalid.
func routeOf(to channel.Destination) (Route, error) {
	r, err := parseRoute(to.Route)
	if err == nil && r.Sealed != "" {
		r.Token = unsealed(r.Sealed, r.Interaction, to.Credential[botToken])
	}
	return r, err
}
