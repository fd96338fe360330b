// Package bucket is the files of one workspace in a bucket of S3, or of a service that speaks as S3 does: list, read with ranges,
// write and remove on conditions, large files in parts. A [Bucket] never leaves its prefix, and no key of it becomes a name that a
// workspace could not have.
//
// Contracts of others that it rests on: ListObjectsV2, GetObject, HeadObject, PutObject, CompleteMultipartUpload and DeleteObject of
// Amazon S3 with If-Match and If-None-Match. A service that ignores conditions would let one writer overwrite another: [Bucket.Check]
// finds that out.
//
// # Uploads
//
// An upload is a folder of objects below .sandjet/uploads: a marker with a random content, and an object for each piece, whose name is the
// offset, counted down, and the hash of the marker. A short list therefore says how long the upload is, and of two writers of one offset
// If-None-Match: * lets one win. Small pieces are merged into larger ones while they come, below 8 MiB. The file is made in one step: a
// small one by a write, a large one by a multipart upload whose parts are copies of the pieces on the service's side. That step has the
// condition of the version that was seen, or of none, and the file's metadata names the marker. A repeated request finds by it that the
// upload has become this file, and removes what is left. The marker goes last, on the condition of its ETag. A worker that was suspended
// cannot replace a newer file, and what it removes or adds belongs to its own upload and no other: pieces without their marker are passed
// over, and the next upload removes them after a day. A folder is moved by copies and then removals. A note beside the uploads says that it
// is being moved, so the same move continues where it broke off; a folder is never moved over another one. Limits are those of copies on
// hosts (--s3-files, --s3-bytes, --s3-file-size). A worker counts a workspace each half minute and before each refusal. Limits of files are
// answered 413 and 507, which no client repeats.
package bucket
