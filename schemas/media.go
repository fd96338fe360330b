package schemas

import (
	"bytes"
	"mime"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"
)

const (
	unknownMedia = "application/octet-stream"
	plainText    = "text/plain; charset=utf-8"
)

// mediaTypes are the media types of files by their extensions: those of a host would differ from one to the next.
func mediaTypes() map[string]string {
	return map[string]string{
		".avif": "image/avif", ".bmp": "image/bmp", ".gif": "image/gif", ".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".png": "image/png",
		".svg": "image/svg+xml", ".tif": "image/tiff", ".tiff": "image/tiff", ".webp": "image/webp",
		".csv": "text/csv; charset=utf-8", ".tsv": "text/tab-separated-values; charset=utf-8", ".parquet": "application/vnd.apache.parquet",
		".xls": "application/vnd.ms-excel", ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
		".ods": "application/vnd.oasis.opendocument.spreadsheet",
		".txt": plainText, ".log": plainText, ".md": "text/markdown; charset=utf-8", ".html": "text/html; charset=utf-8",
		".htm": "text/html; charset=utf-8", ".pdf": "application/pdf", ".doc": "application/msword",
		".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
		".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
		".odt":  "application/vnd.oasis.opendocument.text", ".tex": "application/x-tex", ".ipynb": "application/x-ipynb+json",
		".json": "application/json", ".jsonl": "application/jsonl", ".xml": "application/xml",
		".yaml": "application/yaml", ".yml": "application/yaml",
		".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".zip": "application/zip", ".gz": "application/gzip",
		".tar": "application/x-tar", ".mp3": "audio/mpeg", ".wav": "audio/wav", ".mp4": "video/mp4", ".webm": "video/webm",
	}
}

// MediaType is the media type of a file, by its name or else by the beginning of its content. Who serves it must not believe that
// the content is of that type.
func MediaType(file string, begin []byte) string {
	if media := mediaTypes()[strings.ToLower(path.Ext(file))]; media != "" {
		return media
	}
	const peek = 8 << 10
	begin = begin[:min(len(begin), peek)]
	text := begin[:WholeText(begin)]
	if len(begin) > 0 && len(begin)-len(text) < utf8.UTFMax && utf8.Valid(text) && bytes.IndexByte(text, 0) < 0 {
		return plainText // pages too: by content alone nothing is one
	}
	if media := http.DetectContentType(begin); !strings.HasPrefix(media, "text/") {
		return media
	}
	return unknownMedia
}

// KindOf is the kind of what has a media type.
func KindOf(media string) ArtifactKind {
	base, _, err := mime.ParseMediaType(media)
	if err != nil {
		return KindBinary
	}
	switch base {
	case "text/csv", "text/tab-separated-values", "application/vnd.apache.parquet", "application/vnd.ms-excel",
		"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "application/vnd.oasis.opendocument.spreadsheet":
		return KindTable
	case "text/plain", "text/markdown", "text/html", "application/pdf", "application/msword", "application/x-tex", "application/x-ipynb+json",
		"application/vnd.openxmlformats-officedocument.wordprocessingml.document",
		"application/vnd.openxmlformats-officedocument.presentationml.presentation", "application/vnd.oasis.opendocument.text":
		return KindReport
	}
	if strings.HasPrefix(base, "image/") {
		return KindPlot
	}
	return KindBinary
}

// ShownInline reports whether a browser may show content of a media type in place, whatever the content is: none of these can hold
// a script. Everything else is only ever saved.
func ShownInline(media string) bool {
	switch media {
	case "image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", plainText:
		return true
	}
	return false
}
