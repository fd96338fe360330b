package schemas

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the file plane.
const (
	// MaxFileChunk is the most bytes of a file in one [FileRequest] or [FileReply].
	MaxFileChunk = 512 << 10
	// MaxFilePath is the most bytes of a path in a workspace.
	MaxFilePath = 4096
	// MaxFilePart is the most bytes of the name of one file or folder.
	MaxFilePart = 255
	// MaxFileSize is the most bytes of a file that is uploaded: 16 GiB.
	MaxFileSize = int64(16) << 30
	// MaxFilesListed is how many entries one listing looks at, and one removal of a folder removes at a time.
	MaxFilesListed = 10_000
	// MaxFilesPage is how many entries a page of a listing has at most.
	MaxFilesPage = 1000
	// MaxFileHeader is the most bytes of the JSON before the bytes of a file.
	MaxFileHeader = 512 << 10
	// UploadsFolder holds files that have not arrived whole, below the root of the workspace.
	UploadsFolder = ".sandjet/uploads"
	// MaxUploads is how many files of one workspace may be arriving at a time.
	MaxUploads = 100
	// UploadLifetime is how long a part of a file waits for the rest.
	UploadLifetime = 24 * time.Hour
)

// FieldFileSize is the field of an error with the code invalid that says that a file is too large.
const FieldFileSize = "size"

// FileOp is an operation on a workspace's files.
type FileOp string

// The operations. Each may be asked for again when its answer was lost: what is done already is found to be done.
const (
	FileStat   FileOp = "stat"   // describe Path
	FileList   FileOp = "list"   // a page of the folder Path
	FileRead   FileOp = "read"   // Length bytes of Path from Offset on, of the version If
	FileWrite  FileOp = "write"  // the whole of Path
	FileAppend FileOp = "append" // bytes of the upload Path, from Offset on
	FileCommit FileOp = "commit" // give the upload Path, which has Size bytes, the name To
	FileMkdir  FileOp = "mkdir"  // make the folder Path
	FileMove   FileOp = "move"   // give Path the name To
	FileRemove FileOp = "remove" // remove Path
)

// FileRequest asks a worker for an operation on the files of a workspace. For a write or an append the bytes follow it.
type FileRequest struct {
	Account   AccountID   `json:"account"`
	Workspace WorkspaceID `json:"workspace"`
	Op        FileOp      `json:"op"`
	Path      string      `json:"path,omitzero"`
	To        string      `json:"to,omitzero"`
	Offset    int64       `json:"offset,omitzero"`
	Length    int         `json:"length,omitzero"`
	Size      int64       `json:"size,omitzero"`
	// If is the ETag that the file must have; "*": there must be one. Of a commit and a write, that of the file to be replaced.
	If string `json:"if,omitzero"`
	// IfNone: there must be none.
	IfNone bool `json:"if_none,omitzero"`
	// Was is what the answer to the last append said, so that a commit that was carried out is known again.
	Was *FileInfo `json:"was,omitzero"`
	// Recursive: also what is below, of a list or a removal.
	Recursive bool   `json:"recursive,omitzero"`
	After     string `json:"after,omitzero"` // of a list: the path of the last entry before
	Limit     int    `json:"limit,omitzero"` // of a list: entries, 1 to MaxFilesPage
	// Executable and Modified are kept of a file that is written or committed, where its provider can: of the time the seconds, so that
	// an ETag stays that of one version. Nil: as such files are.
	Executable *bool      `json:"executable,omitzero"`
	Modified   *time.Time `json:"modified,omitzero"`
	// Again: the request may have been carried out before.
	Again bool `json:"again,omitzero"`
}

// FileReply is the answer to a [FileRequest]. For a read the bytes follow it.
type FileReply struct {
	File    *FileInfo  `json:"file,omitzero"`
	Entries []FileInfo `json:"entries,omitzero"`
	More    bool       `json:"more,omitzero"`    // of a list: there are entries behind these; of a removal: some are left
	Created bool       `json:"created,omitzero"` // there was no such file before
	// Unnamed is how many entries a listing leaves out because their names are not UTF-8.
	Unnamed int `json:"unnamed,omitzero"`
}

// FileInfo describes a file or a folder of a workspace.
type FileInfo struct {
	// Path leads from the root of the workspace to it; "." is the root.
	Path string `json:"path"`
	// Type is file, directory, link or other (a FIFO, a socket or a device, none of which is opened).
	Type FileType `json:"type"`
	// Size is in bytes, of a file.
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	// ETag changes with the file's content, and is empty for everything else and in listings.
	ETag string `json:"etag,omitzero"`
	// Executable: the file may be run. Absent in listings.
	Executable bool `json:"executable,omitzero"`
}

// FileType is what something in a workspace is.
type FileType string

// The types.
const (
	TypeFile      FileType = "file"
	TypeDirectory FileType = "directory"
	TypeLink      FileType = "link"
	TypeOther     FileType = "other"
)

// EncodeFileMessage is a request or a reply with the bytes of a file behind it: one line of JSON, and then the bytes as they are.
func EncodeFileMessage(header any, data []byte) ([]byte, error) {
	text, err := json.Marshal(header)
	if err != nil {
		return nil, Wrap(Internal, "files", "the message cannot be written", err)
	}
	return append(append(text, '\n'), data...), nil
}

// DecodeFileMessage reads what [EncodeFileMessage] has made into header, and returns the bytes behind it, which are part of text.
// Code: invalid.
func DecodeFileMessage(text []byte, header any) (data []byte, err error) {
	end := bytes.IndexByte(text[:min(len(text), MaxFileHeader)], '\n')
	if end < 0 {
		return nil, Invalidf("", "a message about files begins with a line of JSON of at most %d bytes", MaxFileHeader)
	}
	if err := DecodeStrict(text[:end], end, header); err != nil {
		return nil, err
	}
	if data = text[end+1:]; len(data) > MaxFileChunk {
		return nil, Invalidf("", "%d bytes of a file, at most %d at a time", len(data), MaxFileChunk)
	}
	return data, nil
}

// Validate checks a request as far as that can be done without the files. Code: invalid.
func (r FileRequest) Validate() error {
	switch {
	case r.Account == "":
		return Invalidf("account", "must not be empty")
	case r.Workspace == "":
		return Invalidf("workspace", "must not be empty")
	case len(r.Path) > MaxFilePath || len(r.To) > MaxFilePath:
		return Invalidf("path", "has more than %d bytes", MaxFilePath)
	case r.Offset < 0 || r.Size < 0 || r.Size > MaxFileSize || r.Offset > MaxFileSize:
		return Invalidf("offset", "must be between 0 and %d", MaxFileSize)
	}
	switch r.Op {
	case FileStat, FileWrite, FileAppend, FileMkdir, FileRemove:
	case FileCommit, FileMove:
		if r.To == "" {
			return Invalidf("to", "must not be empty")
		}
	case FileRead:
		if r.Length < 1 || r.Length > MaxFileChunk {
			return Invalidf("length", "must be between 1 and %d", MaxFileChunk)
		}
	case FileList:
		if r.Limit < 1 || r.Limit > MaxFilesPage {
			return Invalidf("limit", "must be between 1 and %d", MaxFilesPage)
		}
	default:
		return Invalidf("op", "%q is none of files", Quotable(string(r.Op)))
	}
	return nil
}

// FileNameFits reports whether a path is one that a file of a workspace can be given: UTF-8 without NUL and line breaks, within
// [MaxFilePath], each part within [MaxFilePart].
func FileNameFits(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if len(part) > MaxFilePart {
			return false
		}
	}
	return len(path) <= MaxFilePath && utf8.ValidString(path) && !strings.ContainsAny(path, "\x00\n")
}
